"""The contract: the same numbers however the batch is cut, laid out, distributed or interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from train import runs

from ranktuner.train import loader

METHODS = [
    "sft",
    "dft",
    "eaft",
    "talr",
    "overtone",
    "ranktuner(prior=uniform)",
    "ranktuner(prior=prob)",
    "relative-rank",
    "alpha-power",
    "entropy-reg",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make_data(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def reference(folder: Path) -> dict[str, Path]:
    """For every method, one run whose batches go through the model in one piece."""
    return {m: runs.run(folder, f"reference-{i}", method=m, micro_batch=8) for i, m in enumerate(METHODS)}


@pytest.mark.parametrize(("micro", "method"), [*((1, m) for m in METHODS), *((2, m) for m in METHODS[3:7])])
def test_micro_batches_change_nothing(folder: Path, reference: dict[str, Path], method: str, micro: int) -> None:
    cut = runs.run(folder, f"micro-{micro}-{METHODS.index(method)}", method=method, micro_batch=micro)
    runs.assert_same(reference[method], cut)


@pytest.mark.parametrize(
    ("side", "method"), [("left", "ranktuner(prior=prob)"), ("left", "entropy-reg"), ("right", "talr")]
)
def test_padding_changes_nothing(
    folder: Path, reference: dict[str, Path], method: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = loader.Layout
    monkeypatch.setattr("ranktuner.train.build.settle_attention", lambda *_: False)
    monkeypatch.setattr("ranktuner.train.build.Layout", lambda padded, pad_id: layout(padded, pad_id, side))
    padded = runs.run(folder, f"padded-{side}-{METHODS.index(method)}", method=method, micro_batch=4)
    runs.assert_same(reference[method], padded)


@pytest.mark.parametrize("method", ["ranktuner(prior=prob)", "talr"])
def test_gradient_checkpointing_changes_nothing(folder: Path, reference: dict[str, Path], method: str) -> None:
    sets = ("model.gradient_checkpointing=on",)
    runs.assert_same(
        reference[method], runs.run(folder, f"saved-{METHODS.index(method)}", sets, method=method, micro_batch=2)
    )


def test_adapters_too(folder: Path) -> None:
    whole = runs.run(folder, "lora-8", lora=4, method="ranktuner(prior=prob)", micro_batch=8)
    sets = ("model.gradient_checkpointing=on",)
    cut = runs.run(folder, "lora-1", sets, lora=4, method="ranktuner(prior=prob)", micro_batch=1)
    runs.assert_same(whole, cut)
    assert runs.furthest(whole, cut) <= 1e-5


def test_rows_that_streaming_finds_empty_change_nothing(folder: Path) -> None:
    # Cut at 25 tokens some rows keep no answer: held data leave them out, streamed data meet them in their batches.
    streamed = [
        runs.run(folder, f"empty-{m}", ("data.streaming=on",), method="talr", max_length=25, micro_batch=m)
        for m in (1, 8)
    ]
    runs.assert_same(*streamed)
    plan = json.loads((streamed[0] / "run.json").read_text())["plan"]
    assert plan["counts"]["dropped"] > 0


def test_packing_and_streaming_lose_no_token(folder: Path) -> None:
    held = runs.run(folder, "held", method="dft", micro_batch=8)
    streamed = runs.run(folder, "streamed", ("data.streaming=on",), method="dft", micro_batch=2)
    runs.assert_same(held, streamed)
    packed = runs.run(folder, "packed", method="dft", packing=True, max_length=128, global_batch=2, max_steps=50)
    assert sum(line["tokens"] for line in runs.lines(packed)) > 0


def test_a_methods_numbers_are_its_own(reference: dict[str, Path]) -> None:
    losses = {m: tuple(round(line["loss"], 7) for line in runs.lines(path)) for m, path in reference.items()}
    assert len(set(losses.values())) == len(METHODS)
    first = {round(runs.lines(path)[0]["nll"], 5) for path in reference.values()}
    assert len(first) == 1, "the first step's plain nll does not depend on the method"


@pytest.mark.parametrize("method", ["ranktuner(prior=prob)", "talr"])
@pytest.mark.parametrize("step", [1, 3])
def test_resuming_at_any_step_goes_on_with_the_same_numbers(folder: Path, method: str, step: int) -> None:
    name = f"whole-{METHODS.index(method)}"
    whole = folder / name
    if not whole.exists():
        runs.run(folder, name, method=method, micro_batch=4, save_every=1)
    again = folder / f"{name}-from-{step}"
    runs.cut_off(folder, name, again.name, step)
    runs.run(folder, again.name, method=method, micro_batch=4, save_every=1, resume=True)
    runs.assert_same(whole, again, rel=1e-7)
    assert runs.furthest(whole, again) <= 1e-7


def test_normalizing_divides_the_gradient_by_the_mean_weight(folder: Path, reference: dict[str, Path]) -> None:
    sets = ("optimizer.normalize_weights=true",)
    for method in ("dft", "ranktuner(prior=prob)"):
        normal = runs.run(folder, f"normal-{METHODS.index(method)}", sets, method=method, micro_batch=4)
        # The first step's learning rate is 0, so the first two steps see the same weights as without.
        for a, b in list(zip(runs.lines(reference[method]), runs.lines(normal), strict=True))[:2]:
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
            assert b["grad_norm"] == pytest.approx(a["grad_norm"] / a["weight_mean"], rel=1e-5)
