"""The layouts agree: what diagnostics and evaluation really write is drawn whole, without a notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import demo
import numpy as np
import pytest
import tables

from ranktuner.diagnostics.gradients import gradients
from ranktuner.diagnostics.inference_entropy import inference_entropy, sample_id
from ranktuner.diagnostics.noise import noise
from ranktuner.diagnostics.regimes import regimes
from ranktuner.diagnostics.surface import surface
from ranktuner.diagnostics.suspects import inspect_data
from ranktuner.diagnostics.table import TokenTable
from ranktuner.diagnostics.tightness import tightness
from ranktuner.diagnostics.tokens import tokens
from ranktuner.evals.records import Grade, Problem, Sample
from ranktuner.evals.results import Outcome, pass_at_k_finding, samples_finding
from ranktuner.findings import Finding
from ranktuner.report import build, read
from ranktuner.report.figures import OF_KIND
from ranktuner.report.paper import write_figures

METHODS = ["sft", "dft", "ranktuner(prior=prob)"]


def some_table(**meta: object) -> TokenTable:
    rng = np.random.default_rng(0)
    rows = [[f" w{row}-{i}" for i in range(10)] for row in range(20)]
    for row in (3, 7):
        rows[row][4:6] = [" x", " y"]
    p = rng.uniform(0.001, 0.99, 200)
    rank = rng.integers(1, 30, 200)
    rank[p > 0.5] = 1
    top, expected = np.maximum(p, 0.3), rng.uniform(40, 200, 200)
    bits = rng.uniform(0, 7, 200)
    return tables.table(rows, p=p, rank=rank, entropy_bits=bits, p_max=top, expected_rank=expected, **meta)


def answers(temperature: float) -> TokenTable:
    keys = [(f"gsm8k#{i}", run) for i in range(4) for run in range(8)]
    ids = [sample_id(*key) for key in keys]
    return tables.table([["x"] * 5] * len(keys), entropy_bits=1.5, p_max=0.5, ids=ids, temperature=temperature)


def outcome() -> Outcome:
    samples = [Sample("t", f"p{i}", n, 0, "It is 4.", "stop", 5, "", {}, "") for i in range(6) for n in range(4)]
    grades = {(s.problem, s.index): Grade("correct" if s.index else "unparsed", "4", "equal") for s in samples}
    return Outcome.of("t", "T", [Problem(f"p{i}", "2+2?", "4") for i in range(6)], 4, samples, grades)


PLANTED = {"3": [8, " x y"], "7": [8, " x y"]}
MAKERS: Mapping[str, Callable[[], Finding]] = {
    "comparison": demo.comparison,
    "noise": lambda: noise([some_table(planted=PLANTED, seed=s) for s in (0, 1)], METHODS),
    "tightness": lambda: tightness({"a": some_table(), "b": some_table()}),
    "regimes": lambda: regimes({"a": some_table(), "b": some_table()}, METHODS),
    "gradients": lambda: gradients(some_table(), METHODS),
    "gradients without data": lambda: gradients(None, METHODS),
    "surface": lambda: surface(9),
    "inference-entropy": lambda: inference_entropy({"sft": answers(0.2), "runs/ranktuner/model": answers(0.2)}),
    "tokens": lambda: tokens(some_table(), METHODS),
    "inspect-data": lambda: inspect_data(some_table()),
    "inspect-data with noise": lambda: inspect_data(
        some_table(), planted={"sentence": some_table(planted=PLANTED, seed=0)}
    ),
    "pass-at-k": lambda: pass_at_k_finding(outcome(), (1, 2, 4)),
    "samples": lambda: samples_finding(outcome(), {f"p{i}": "2+2?" for i in range(6)}),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_written_is_drawn(name: str, tmp_path: Path) -> None:
    finding = MAKERS[name]()
    finding.save(tmp_path / "found.json")
    page = build(read([tmp_path]))
    assert page.notices == []
    assert "Kinds that have no figure" not in page.html
    part = {
        "comparison": "comparison",
        "tokens": "tokens",
        "inspect-data": "suspects",
        "pass-at-k": "results",
        "samples": "samples",
    }
    assert f'<section id="{part.get(finding.kind, "diagnostics")}"' in page.html
    if finding.kind in OF_KIND:
        made = write_figures([tmp_path], tmp_path / "figures", ["svg"])
        assert made
        assert all("NaN" not in path.read_text() for path in made)


def test_every_kind_that_is_drawn_is_made_here() -> None:
    assert {name.split(" ")[0] for name in MAKERS} >= set(OF_KIND)
