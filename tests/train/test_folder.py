"""The run's folder: whose it is, checkpoints whole or absent, metrics cut to where a run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ranktuner.errors import InputError, RankTunerError, UnsupportedError
from ranktuner.train.config import make_config
from ranktuner.train.folder import RunFolder, saving

CONFIG = make_config({"model": {"path": "m"}, "data": {"source": "d"}}).model_dump(mode="json")


def run_folder(path: Path, outcome: str = "running", steps: tuple[int, ...] = (), **config: object) -> RunFolder:
    folder = RunFolder(path)
    folder.write_record(
        {"config": {**CONFIG, **config}, "data_fingerprint": "f", "outcome": outcome, "started": "then"}
    )
    for step in steps:
        written = folder.part() / "x"
        written.mkdir()
        (written / "w").write_text(str(step))
        folder.publish(written, step, keep=99)
    return folder


def test_a_free_folder_is_claimed_from_the_beginning(tmp_path: Path) -> None:
    for resume in (False, True):
        claim = RunFolder(tmp_path / "new").claim(CONFIG, "f", resume)
        assert (claim.step, claim.checkpoint, claim.finished) == (0, None, False)


def test_what_is_not_this_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"not empty and holds no run of ours .* another --output"):
        RunFolder(tmp_path / "other").claim(CONFIG, "f", True)
    with pytest.raises(InputError, match=r"thesis\.tex: a file, not a folder; choose another --output"):
        RunFolder(tmp_path / "other" / "thesis.tex").claim(CONFIG, "f", False)
    run_folder(tmp_path / "run", "failed: x")
    with pytest.raises(InputError, match=r"holds a run already \(failed: x, started then\); go on with --resume"):
        RunFolder(tmp_path / "run").claim(CONFIG, "f", False)
    with pytest.raises(InputError, match=r"from another configuration .*seed: 0 -> 7"):
        RunFolder(tmp_path / "run").claim({**CONFIG, "seed": 7}, "f", True)
    with pytest.raises(InputError, match="the data's content: f -> g"):
        RunFolder(tmp_path / "run").claim(CONFIG, "g", True)
    run_folder(tmp_path / "native", sharding="native")
    with pytest.raises(UnsupportedError, match="sharding=native cannot save its optimiser"):
        RunFolder(tmp_path / "native").claim({**CONFIG, "sharding": "native"}, "f", True)
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not readable"):
        RunFolder(tmp_path / "run").claim(CONFIG, "f", True)


def test_one_run_at_a_time_has_the_folder(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.hold()
    with pytest.raises(InputError, match=r"run: this process trains in this folder now; wait for it, or choose"):
        second.hold()
    second.release()
    with pytest.raises(InputError, match="trains in this folder now"):
        second.hold()
    first.release()
    second.hold()
    second.release()
    assert second.claim(CONFIG, "f", False).step == 0, "a lock alone is no run"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RankTunerError, match=r"run could not be written \(.*Not a directory"):
        RunFolder(tmp_path / "file" / "run").hold()


def test_settings_that_touch_no_number_may_change(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=(4,))
    changed = json.loads(json.dumps(CONFIG))
    changed["telemetry"]["log_every"] = 5
    changed["checkpoint"]["keep"] = 9
    changed["batch"]["micro"] = 2
    assert folder.claim(changed, "f", True).step == 4


def test_the_last_whole_checkpoint_counts(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=(9, 10, 100))
    folder.part().joinpath("half").write_text("a kill came here")
    assert folder.steps() == [9, 10, 100]
    claim = folder.claim(CONFIG, "f", True)
    assert (claim.step, Path(claim.checkpoint).name) == (100, "step-100")


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=(1, 2, 3))
    written = folder.part() / "x"
    written.mkdir()
    folder.publish(written, 4, keep=2)
    assert folder.steps() == [3, 4]
    assert not [p for p in folder.checkpoints.iterdir() if p.name.startswith(".old")]


def test_metrics_end_where_the_run_goes_on(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=(2,))
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 2, "eval_nll": 1}\n{"step": 3}\n{"st')
    folder.claim(CONFIG, "f", True)
    assert [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()] == [1, 2, 2]


def test_a_finished_run_keeps_its_metrics_when_its_checkpoints_are_gone(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "finished")
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n')
    assert folder.claim(CONFIG, "f", True).finished
    assert len(folder.metrics.read_text().splitlines()) == 2


def test_a_failed_save_says_what_is_still_there(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", steps=(2,))
    with pytest.raises(RankTunerError) as caught, saving("the checkpoint of step 5", folder):
        raise OSError(28, "No space left on device")
    text = str(caught.value)
    assert "the checkpoint of step 5 could not be written ([Errno 28] No space left on device" in text
    assert "the last good checkpoint is" in text
    assert "step-2" in text
    assert "--resume" in text
