"""Several processes: the same numbers as one; what is not really distributed is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from train import runs

from ranktuner.errors import UnsupportedError
from ranktuner.train.config import read_config
from ranktuner.train.launch import check_launch, check_processes, check_sharding
from ranktuner.train.plan import World

METHODS = ["sft", "ranktuner(prior=prob)", "talr"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make_data(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Path]:
    return {
        m: runs.run(folder, f"alone-{i}", method=m, micro_batch=4, eval_data=str(folder / "eval.jsonl"))
        for i, m in enumerate(METHODS)
    }


def test_two_processes_are_one(folder: Path, alone: dict[str, Path]) -> None:
    runs.launch(runs.jobs(folder, METHODS, "ddp", save_every=1), 2)
    runs.assert_like_alone(folder, "ddp", alone, "DDP")


@pytest.mark.slow
def test_two_processes_resume(folder: Path, alone: dict[str, Path]) -> None:
    runs.launch(runs.jobs(folder, METHODS, "pair", save_every=1), 2)
    for i in range(len(METHODS)):
        runs.cut_off(folder, f"pair-{i}", f"pair-again-{i}", 2)
    runs.launch([{**job, "resume": True} for job in runs.jobs(folder, METHODS, "pair-again", save_every=1)], 2)
    runs.assert_like_alone(folder, "pair-again", alone, "DDP")


@pytest.mark.slow
def test_fsdp2_through_accelerate_is_one_process_and_resumes(folder: Path, alone: dict[str, Path]) -> None:
    sharded = {"sets": ["sharding=accelerate"], "save_every": 1}
    runs.launch(runs.jobs(folder, METHODS, "fsdp", **sharded), 2, runs.FSDP)
    runs.assert_like_alone(folder, "fsdp", alone, "FSDP2 (accelerate)")
    for i in range(len(METHODS)):
        runs.cut_off(folder, f"fsdp-{i}", f"fsdp-again-{i}", 2)
    runs.launch([{**job, "resume": True} for job in runs.jobs(folder, METHODS, "fsdp-again", **sharded)], 2, runs.FSDP)
    runs.assert_like_alone(folder, "fsdp-again", alone, "FSDP2 (accelerate)")


@pytest.mark.slow
def test_native_fsdp2_is_one_process_and_refuses_to_resume(folder: Path, alone: dict[str, Path]) -> None:
    runs.launch(runs.jobs(folder, METHODS, "native", sets=["sharding=native"]), 2)
    runs.assert_like_alone(folder, "native", alone, "FSDP2 (native)")
    record = (folder / "native-0" / "run.json").read_text().replace('"finished"', '"running"')
    (folder / "native-0" / "run.json").write_text(record)
    with pytest.raises(AssertionError, match="sharding=native cannot save its optimiser"):
        runs.launch([{**runs.jobs(folder, METHODS, "native", sets=["sharding=native"])[0], "resume": True}], 2)


def test_sharding_that_is_not_in_effect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(sharding: str) -> object:
        return read_config(flags={"model": "m", "data": "d"}, sets=[f"sharding={sharding}"])

    with pytest.raises(UnsupportedError, match="was not started with FSDP; start it with `accelerate launch"):
        check_launch(config("accelerate"), World(2, 0))
    with pytest.raises(UnsupportedError, match="sharding=native with one process shards nothing"):
        check_launch(config("native"), World(1, 0))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(UnsupportedError, match="accelerate was told to use FSDP, but sharding=none"):
        check_launch(config("none"), World(2, 0))
    with pytest.raises(UnsupportedError, match="2 processes were started but training sees 1"):
        check_processes(World(2, 0), 1)
    import tiny

    with pytest.raises(UnsupportedError, match=r"no parameter is sharded \(accelerate says MULTI_CPU\)"):
        check_sharding(config("accelerate"), tiny.model(), "MULTI_CPU")
