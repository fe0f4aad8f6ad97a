"""Several processes: the same numbers as one; what is not really distributed is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from train import runs

from ranktuner.errors import UnsupportedError
from ranktuner.train.config import read_config
from ranktuner.train.launch import check_launch, check_processes, check_sharding
from ranktuner.train.plan import World

METHODS = ["sft", "ranktuner(prior=prob)", "talr"]
FSDP = {
    "FORCE_FSDP_ON_CPU": "1",
    "ACCELERATE_TORCH_DEVICE": "cpu",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen2DecoderLayer",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make_data(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Path]:
    return {
        m: runs.run(folder, f"alone-{i}", method=m, micro_batch=4, eval_data=str(folder / "eval.jsonl"))
        for i, m in enumerate(METHODS)
    }


def jobs(folder: Path, name: str, **more: object) -> list[dict[str, object]]:
    return [
        {
            "folder": str(folder),
            "output": f"{name}-{i}",
            "method": method,
            "micro_batch": 2,
            "eval_data": str(folder / "eval.jsonl"),
            **more,
        }
        for i, method in enumerate(METHODS)
    ]


def resume_from(folder: Path, name: str, step: int) -> None:
    """Make copies of finished runs that look as if they had been killed after `step`."""
    for i in range(len(METHODS)):
        again = folder / f"{name}-again-{i}"
        shutil.copytree(folder / f"{name}-{i}", again)
        shutil.rmtree(again / "model")
        for checkpoint in (again / "checkpoints").iterdir():
            if int(checkpoint.name.removeprefix("step-")) > step:
                shutil.rmtree(checkpoint)
        record = (again / "run.json").read_text().replace('"outcome": "finished"', '"outcome": "running"')
        (again / "run.json").write_text(record.replace(f"{name}-{i}", again.name))


def assert_like_alone(folder: Path, name: str, alone: dict[str, Path], says: str) -> None:
    for i, method in enumerate(METHODS):
        output = folder / f"{name}-{i}"
        runs.assert_same(alone[method], output)
        assert says in json.loads((output / "run.json").read_text())["active"]
        assert runs.furthest(alone[method], output) <= 2e-5
        evals = [_last_eval(path) for path in (alone[method], output)]
        assert evals[0] == pytest.approx(evals[1], rel=1e-5)


def _last_eval(output: Path) -> float:
    found = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line["eval_nll"] for line in found if "eval_nll" in line][-1]


def test_two_processes_are_one(folder: Path, alone: dict[str, Path]) -> None:
    runs.launch(jobs(folder, "ddp", save_every=1), 2)
    assert_like_alone(folder, "ddp", alone, "DDP")


@pytest.mark.slow
def test_two_processes_resume(folder: Path, alone: dict[str, Path]) -> None:
    runs.launch(jobs(folder, "pair", save_every=1), 2)
    resume_from(folder, "pair", 2)
    runs.launch([{**job, "resume": True} for job in jobs(folder, "pair-again", save_every=1)], 2)
    assert_like_alone(folder, "pair-again", alone, "DDP")


@pytest.mark.slow
def test_fsdp2_through_accelerate_is_one_process_and_resumes(folder: Path, alone: dict[str, Path]) -> None:
    sharded = {"sets": ["sharding=accelerate"], "save_every": 1}
    runs.launch(jobs(folder, "fsdp", **sharded), 2, FSDP)
    assert_like_alone(folder, "fsdp", alone, "FSDP2 (accelerate)")
    resume_from(folder, "fsdp", 2)
    runs.launch([{**job, "resume": True} for job in jobs(folder, "fsdp-again", **sharded)], 2, FSDP)
    assert_like_alone(folder, "fsdp-again", alone, "FSDP2 (accelerate)")


@pytest.mark.slow
def test_native_fsdp2_is_one_process_and_refuses_to_resume(folder: Path, alone: dict[str, Path]) -> None:
    runs.launch(jobs(folder, "native", sets=["sharding=native"]), 2)
    assert_like_alone(folder, "native", alone, "FSDP2 (native)")
    record = (folder / "native-0" / "run.json").read_text().replace('"finished"', '"running"')
    (folder / "native-0" / "run.json").write_text(record)
    with pytest.raises(AssertionError, match="sharding=native cannot save its optimiser"):
        runs.launch([{**jobs(folder, "native", sets=["sharding=native"])[0], "resume": True}], 2)


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
