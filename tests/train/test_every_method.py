"""The contract for every method that comes along: one set of numbers, however a run is cut, laid out or distributed."""

from __future__ import annotations

from pathlib import Path

import pytest
from train import runs

import ranktuner as rt
from ranktuner.train import loader

METHODS = [*(name for name in rt.methods() if name != "ranktuner"), "ranktuner(prior=uniform)", "ranktuner(prior=prob)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make_data(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Path]:
    """For every method, one run of one process whose batches go through the model in one piece."""
    evaluated = str(folder / "eval.jsonl")
    return {
        m: runs.run(folder, f"alone-{i}", method=m, micro_batch=8, save_every=1, eval_data=evaluated)
        for i, m in enumerate(METHODS)
    }


@pytest.mark.parametrize("method", METHODS)
def test_in_one_process(folder: Path, alone: dict[str, Path], method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    i = METHODS.index(method)
    for micro in (1, 2):
        runs.assert_same(alone[method], runs.run(folder, f"micro-{micro}-{i}", method=method, micro_batch=micro))
    saved = ("model.gradient_checkpointing=on",)
    runs.assert_same(alone[method], runs.run(folder, f"saved-{i}", saved, method=method, micro_batch=2))
    runs.cut_off(folder, f"alone-{i}", f"resumed-{i}", 2)
    evaluated = str(folder / "eval.jsonl")
    resumed = runs.run(
        folder, f"resumed-{i}", resume=True, method=method, micro_batch=8, save_every=1, eval_data=evaluated
    )
    runs.assert_same(alone[method], resumed, rel=1e-7)
    layout = loader.Layout
    monkeypatch.setattr("ranktuner.train.build.settle_attention", lambda *_: False)
    for side in ("left", "right"):
        monkeypatch.setattr(
            "ranktuner.train.build.Layout", lambda padded, pad_id, side=side: layout(padded, pad_id, side)
        )
        runs.assert_same(alone[method], runs.run(folder, f"{side}-{i}", method=method, micro_batch=4))


@pytest.mark.parametrize(
    ("name", "sets", "environment", "says"),
    [
        ("ddp", [], {}, "DDP"),
        ("fsdp", ["sharding=accelerate"], runs.FSDP, "FSDP2 (accelerate)"),
        ("native", ["sharding=native"], {}, "FSDP2 (native)"),
    ],
)
def test_in_two_processes(
    folder: Path, alone: dict[str, Path], name: str, sets: list[str], environment: dict[str, str], says: str
) -> None:
    runs.launch(runs.jobs(folder, METHODS, name, sets=sets), 2, environment)
    runs.assert_like_alone(folder, name, alone, says)
