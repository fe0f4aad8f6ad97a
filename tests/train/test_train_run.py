"""A run from the command line to the model folder; what goes wrong on the way, and what is left then."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from train import runs

import ranktuner
from ranktuner.cli import main
from ranktuner.errors import InputError, NonFiniteError, RankTunerError
from ranktuner.train.folder import RunFolder

TOLD = [
    *("step", "loss", "nll", "weight_mean", "weight_max", "effective_tokens", "k_mean", "entropy_bits_mean"),
    *("high_entropy_share", "top1", "tokens", "tokens_per_s", "learning_rate", "grad_norm", "clipped"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make_data(tmp_path_factory.mktemp("runs"))


def in_child(action: Callable[[], object], after: Callable[[int], None] = lambda pid: None) -> int:
    """Run `action` in a forked child (everything is imported already); return its wait status."""
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            action()
            status = 0
        finally:
            os._exit(status)
    after(child)
    return os.waitpid(child, 0)[1]


def test_the_command_line_does_the_sensible_thing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(["train", "--model", "model", "--data", "train.jsonl"]) == 0
    said = capsys.readouterr().err
    output = Path("runs/model-train-ranktuner-prior-uniform")
    assert "48 examples" in said
    assert "shrunk from 256: 48 sequences would give 1 steps" in said
    assert "prior=uniform: for general data" in said
    assert "active   ranktuner on the head of Qwen2ForCausalLM" in said
    assert f"done     model in {output}/model" in said
    assert f"ranktuner eval --model {output}/model" in said
    record = json.loads((output / "run.json").read_text())
    assert record["outcome"] == "finished"
    assert record["config"]["batch"]["size"] == 1
    assert {"versions", "git", "data_fingerprint", "seed", "plan", "command"} <= record.keys()
    lines = runs.lines(output)
    assert len(lines) == 48
    assert all(list(line) == TOLD for line in lines)
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(output / "model")
    assert "| method | `ranktuner(prior=uniform)` |" in (output / "model" / "README.md").read_text()
    # once more: the folder is taken, and --resume finds nothing left to do
    assert main(["train", "--model", "model", "--data", "train.jsonl"]) == 1
    assert "holds a run already (finished" in capsys.readouterr().err
    assert main(["train", "--model", "model", "--data", "train.jsonl", "--resume"]) == 0
    assert "finished already" in capsys.readouterr().err


def test_a_dry_run_leaves_nothing_behind(folder: Path) -> None:
    config = runs.settings(folder, "dry")
    result = ranktuner.train(
        {
            "model": {"path": config["model"]},
            "data": {"source": config["data"]},
            "output": config["output"],
        },
        dry_run=True,
        quiet=True,
    )
    assert (result.outcome, result.plan.counts.examples) == ("planned", 48)
    assert not Path(config["output"]).exists()


def test_adapters_train_and_merge_into_a_model_that_answers_alike(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    output = runs.run(folder, "lora", lora=4, max_steps=6, learning_rate=0.02)
    capsys.readouterr()
    assert main(["merge", str(output), "--output", str(folder / "merged")]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"{folder / 'merged'}\n", ""), "nothing of the libraries between"
    base = AutoModelForCausalLM.from_pretrained(folder / "model")
    ids = torch.arange(5, 35)[None]
    before = base(ids).logits
    adapted = PeftModel.from_pretrained(base, output / "model")(ids).logits
    merged = AutoModelForCausalLM.from_pretrained(folder / "merged")(ids).logits
    torch.testing.assert_close(merged, adapted, rtol=1e-4, atol=1e-4)
    assert (merged - before).abs().max() > 0.01
    assert "merged into the base model" in (folder / "merged" / "README.md").read_text()
    assert (folder / "merged" / "tokenizer.json").exists()
    full = runs.run(folder, "full", max_steps=1)
    for wrong, message in (
        (full, "trained all weights, so there is nothing to merge"),
        (folder / "nowhere", "neither a run of ours nor an adapter"),
    ):
        with pytest.raises(InputError, match=message):
            ranktuner.train.merge.merge(wrong)


def test_trackers_get_the_numbers_or_are_refused_by_name(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    output = runs.run(folder, "tracked", max_steps=3, report_to="tensorboard", eval_data=str(folder / "eval.jsonl"))
    events = EventAccumulator(str(output / "tensorboard"))
    events.Reload()
    told = [event.value for event in events.Scalars("train/nll")]
    assert told == pytest.approx([line["nll"] for line in runs.lines(output)], rel=1e-6)
    assert "eval/nll" in events.Tags()["scalars"]
    with pytest.raises(InputError, match="--report-to tensorbord: no such tracker; did you mean 'tensorboard'"):
        runs.run(folder, "untracked", report_to="tensorbord")


def test_held_out_nll_is_plain_whatever_the_method(folder: Path) -> None:
    found = []
    for i, method in enumerate(("sft", "dft")):
        output = runs.run(folder, f"eval-{i}", method=method, max_steps=1, eval_data=str(folder / "eval.jsonl"))
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        found.append([line["eval_nll"] for line in lines if "eval_nll" in line])
    assert found[0] == found[1]  # the only step so far had learning rate 0


def test_signals_save_and_stop_and_the_run_goes_on(folder: Path) -> None:
    whole = runs.run(folder, "whole", max_steps=12, save_every=100)
    assert runs.lines(whole)[-1]["nll"] < runs.lines(whole)[0]["nll"] - 0.1
    output = folder / "stopped"

    def stop(child: int) -> None:
        wait_for(lambda: (output / "metrics.jsonl").exists() and len(runs.lines(output)) >= 3)
        os.kill(child, signal.SIGTERM)

    assert in_child(lambda: runs.run(folder, "stopped", max_steps=12, save_every=100), stop) == 0
    record = json.loads((output / "run.json").read_text())
    assert record["outcome"] == "stopped"
    assert 3 <= len(runs.lines(output)) < 12
    runs.run(folder, "stopped", max_steps=12, save_every=100, resume=True)
    runs.assert_same(whole, output, rel=1e-7)
    assert runs.furthest(whole, output) == 0
    assert json.loads((output / "run.json").read_text())["resumed"]


def test_killed_at_ten_random_moments_the_weights_are_those_of_the_undisturbed_run(folder: Path) -> None:
    steps, draw = 40, random.Random(7)
    start = time.monotonic()
    whole = runs.run(folder, "undisturbed", max_steps=steps, save_every=1, method="talr")
    step_time = (time.monotonic() - start) / steps
    output, in_save = folder / "killed", 0
    part = output / "checkpoints" / ".part"

    def go() -> None:
        # One checkpoint a step: a good part of the time is spent inside saves.
        runs.run(folder, "killed", max_steps=steps, save_every=1, method="talr", resume=True)

    def progress() -> int:
        return len((output / "metrics.jsonl").read_bytes().splitlines()) if (output / "metrics.jsonl").exists() else 0

    for kill in range(10):
        # Within the first steps after a start, so that ten kills never come too late; every third inside a save.
        ahead = progress() + draw.randint(0, 3)

        # What an earlier kill left behind is still there when a run starts: a younger one must come.
        started = time.time_ns()

        def strike(child: int, ahead: int = ahead, kill: int = kill, started: int = started) -> None:
            if kill % 3 == 0:
                wait_for(lambda: changed(part) > started)
            else:
                wait_for(lambda: progress() >= ahead)
            time.sleep(draw.uniform(0, step_time / (5 if kill % 3 == 0 else 1)))
            os.kill(child, signal.SIGKILL)

        assert os.WIFSIGNALED(in_child(go, strike)), "the run ended before it was killed"
        in_save += changed(part) > started
    assert in_child(go) == 0
    assert in_save, "no kill came inside a save"
    runs.assert_same(whole, output, rel=1e-7)
    assert runs.furthest(whole, output) <= 1e-6


def test_a_full_disk_keeps_the_last_good_checkpoint(folder: Path) -> None:
    output = folder / "full-disk"
    runs.run(folder, "full-disk", max_steps=2, save_every=1)
    for later in ("step-2", "../model"):
        shutil.rmtree(output / "checkpoints" / later)
    record = (output / "run.json").read_text().replace('"outcome": "finished"', '"outcome": "running"')
    (output / "run.json").write_text(record)

    def go() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        try:
            runs.run(folder, "full-disk", max_steps=2, save_every=1, resume=True)
        except RankTunerError as error:
            Path(folder / "said").write_text(str(error))

    assert in_child(go) == 0
    said = (folder / "said").read_text()
    assert "the checkpoint of step 2 could not be written" in said
    assert "the last good checkpoint is" in said
    assert "step-1" in said
    runs.run(folder, "full-disk", max_steps=2, save_every=1, resume=True)
    assert (output / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("limit", "what"), [(20_000, "the trained model could not be written"), (150, "metrics.jsonl (step 1)")]
)
def test_a_disk_that_is_full_elsewhere_is_said_too(
    folder: Path, limit: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"full-{limit}"
    steps = {"max_steps": 2, "save_every": 2}
    if limit == 20_000:  # everything is trained and saved but the result
        runs.run(folder, name, **steps)
        shutil.rmtree(folder / name / "model")
        record = (folder / name / "run.json").read_text().replace('"outcome": "finished"', '"outcome": "running"')
        (folder / name / "run.json").write_text(record)

    def go() -> None:
        import ranktuner.train.trainer as trainer

        tell = trainer.Trainer._tell
        if limit == 150:  # full from the first line on
            monkeypatch.setattr(trainer.Trainer, "_tell", lambda *a: (_limit(limit), tell(*a))[1])
        else:
            _limit(limit)
        try:
            runs.run(folder, name, resume=True, **steps)
        except RankTunerError as error:
            (folder / "said").write_text(str(error).replace(str(folder), "")[:limit])

    assert in_child(go) == 0
    assert what in (folder / "said").read_text()
    runs.run(folder, name, resume=True, **steps)
    assert json.loads((folder / name / "run.json").read_text())["outcome"] == "finished"
    assert (folder / name / "model" / "model.safetensors").exists()
    assert [line["step"] for line in runs.lines(folder / name)] == [1, 2]


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_loss_that_is_not_finite_names_its_rows_and_keeps_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError) as caught:
        runs.run(folder, "burst", ("optimizer.warmup_ratio=0",), learning_rate=1e30, max_steps=6, save_every=1)
    said = str(caught.value)
    assert "rows of this batch: train.jsonl:" in said
    assert "the last good checkpoint is" in said
    record = json.loads((folder / "burst" / "run.json").read_text())
    assert record["outcome"].startswith("failed: NonFiniteError: step ")


def test_a_folder_that_is_trained_in_is_refused_and_left_alone(folder: Path) -> None:
    output = runs.run(folder, "held", max_steps=3)
    before = (output / "metrics.jsonl").read_bytes()
    other = RunFolder(output)
    other.hold()
    with pytest.raises(InputError, match="held: this process trains in this folder now; wait for it"):
        runs.run(folder, "held", resume=True, max_steps=3)
    assert (output / "metrics.jsonl").read_bytes() == before
    other.release()
    runs.run(folder, "held", resume=True, max_steps=3)
    runs.run(folder, "held", resume=True, max_steps=3)  # the run before has let go of it


def test_a_checkpoint_of_another_configuration_is_refused(folder: Path) -> None:
    runs.run(folder, "other", max_steps=1)
    with pytest.raises(InputError, match=r"optimizer\.learning_rate: 0\.001 -> 0\.002"):
        runs.run(folder, "other", max_steps=1, learning_rate=2e-3, resume=True)


def test_bf16_keeps_to_fp32_within_its_tolerance(folder: Path) -> None:
    exact = runs.lines(runs.run(folder, "fp32", max_steps=3, method="ranktuner(prior=prob)"))
    rounded = runs.lines(runs.run(folder, "bf16", max_steps=3, method="ranktuner(prior=prob)", dtype="bf16"))
    cut = runs.lines(
        runs.run(folder, "bf16-1", max_steps=3, method="ranktuner(prior=prob)", dtype="bf16", micro_batch=1)
    )
    for a, b, c in zip(exact, rounded, cut, strict=True):
        # Sums over the hundred tokens of a batch: bf16 has 8 bits, and its errors average out.
        for name in ("loss", "nll", "weight_mean", "grad_norm"):
            assert b[name] == pytest.approx(a[name], rel=0.02), name
            assert c[name] == pytest.approx(b[name], rel=0.02), name
        assert abs(a["k_mean"] - b["k_mean"]) <= 0.05 * a["k_mean"]


def changed(path: Path) -> int:
    """When a folder last changed, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.001)
