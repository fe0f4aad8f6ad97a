"""Every shipped recipe at tiny scale, end to end, with one folder of cells; each result has the shape of the paper's.

Workers of pytest share the folder as jobs of a cluster would: what one does, the others wait for.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ranktuner
from ranktuner.compare.paper import Paper, Table, read_paper
from ranktuner.compare.recipe import Recipe, read_recipe, shipped
from ranktuner.evals.sandbox import bubblewrap_or_reason
from ranktuner.findings import Finding

NAMES = shipped()


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that all recipes and all workers share."""
    import transformers  # noqa: F401
    import trl  # noqa: F401

    base = tmp_path_factory.getbasetemp()
    # Every run collects garbage; what the libraries made when they were imported need not be looked through each time.
    gc.freeze()
    yield (base.parent if base.name.startswith("popen-") else base) / "tiny-cells"
    gc.unfreeze()


@pytest.fixture(scope="module")
def safe() -> list[str]:
    """Settings for machines without a sandbox: the tiny model's gibberish is then run in a limited process."""
    return ["eval.allow_unsafe=true"] if isinstance(bubblewrap_or_reason(), str) else []


def findings(output: Path) -> list[Finding]:
    return [Finding.load(path) for path in sorted((output / "findings").glob("*.json"))]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_runs_and_its_result_has_the_shape_of_the_papers(
    name: str, cells: Path, safe: list[str], tmp_path: Path
) -> None:
    recipe = read_recipe(name)
    sets = safe if recipe.eval else []
    found = ranktuner.compare(name, scale="tiny", sets=sets, cells=cells, output=tmp_path, quiet=True)
    assert found.failed == []
    listed = json.loads((tmp_path / "compare.json").read_text())["cells"]
    assert {one["state"] for one in listed} == {"done"}
    assert found.report
    page = found.report.read_text()
    assert "tiny scale: random models" in page, "the page says what it is not"
    if not recipe.paper:
        return
    paper = read_paper(Path(str(recipe.paper_file())))
    if recipe.eval:
        _like_the_tables(found.finding, recipe, paper)
    for section in recipe.diagnose:
        SHAPES[section.kind]([one for one in findings(tmp_path) if one.kind == section.kind], recipe, paper)


def _like_the_tables(finding: Any, recipe: Recipe, paper: Paper) -> None:
    """Rows, tasks and k of every model are those of the paper's table of that model."""
    ours = finding.numbers["tables"]
    assert list(dict.fromkeys(t["model"] for t in ours)) == [f"tiny/{m.rpartition('/')[2]}" for m in recipe.models]
    for model in recipe.models:
        mine = [t for t in ours if t["model"] == f"tiny/{model.rpartition('/')[2]}"]
        (theirs,) = [t for t in paper.for_model(model) if t.model]
        shown = {t["task"]: next(one.k for one in recipe.eval if t["task"] in one.tasks) for t in mine}
        assert [f"{task} pass@{k}" for task, ks in shown.items() for k in ks or []] == theirs.columns
        for table in mine:
            labels = [row["label"] for row in table["rows"]]
            assert labels == ["original", *(r.label for r in theirs.rows if r.method != "original")]
            assert table["k"] == (shown[table["task"]] or [None])[0]
            for row in table["rows"]:
                ks = [at["k"] for at in row["pass_at_k"]]
                assert set(shown[table["task"]] or ()) <= set(ks)
                printed = [row["label"]] if row["label"] != "original" else ["Original"]
                for at in row["pass_at_k"]:
                    value = _printed(theirs, printed[0], f"{table['task']} pass@{at['k']}")
                    assert at["paper"] == (None if value is None else value / 100)
            assert len({row["problems"] for row in table["rows"]}) == 1


def _printed(table: Table, label: str, column: str) -> float | None:
    if column not in table.columns or label not in [row.label for row in table.rows]:
        return None
    return table.value(label, column)


def _noise(found: list[Finding], recipe: Recipe, paper: Paper) -> None:
    (one,) = found
    (table,) = paper.table
    names = [score["name"] for score in one.numbers["scores"]]
    assert names[:3] == [row.method for row in table.rows]
    assert len(names) == 3 + len(recipe.diagnose[0].methods)
    assert {"token_precision", "token_recall", "sequence_hit"} <= one.numbers["scores"][0].keys()


def _tightness(found: list[Finding], recipe: Recipe, paper: Paper) -> None:
    (one,) = found
    assert [s["name"] for s in one.numbers["sets"]] == ["minerva", "math500"]
    gaps = [gap["label"] for gap in one.numbers["sets"][0]["gaps"]]
    assert len(gaps) == len(paper.table[0].columns) // 5 == 2
    assert {"mean", "median", "std", "p80", "p90"} <= one.numbers["sets"][0]["gaps"][0].keys()


def _regimes(found: list[Finding], recipe: Recipe, paper: Paper) -> None:
    (one,) = found
    assert [s["name"] for s in one.numbers["sets"]] == ["minerva", "math500"]
    assert "tokens" in one.numbers["sets"][0]["high"], "the paper's column: tokens at H >= 2 bits"


def _entropy(found: list[Finding], recipe: Recipe, paper: Paper) -> None:
    for model in recipe.models:
        (table,) = paper.for_model(model)
        mine = [one for one in found if one.protocol["model"] == f"tiny/{model.rpartition('/')[2]}"]
        assert {one.protocol["task"] for one in mine} == set(table.columns)
        for one in mine:
            labels = [row["name"] for row in one.numbers["models"]]
            assert labels == ["original", *(row.label for row in table.rows[1:])]
            assert all(len(row["entropy_bits"]["values"]) == 8 for row in one.numbers["models"]), "runs"


def _surface(found: list[Finding], recipe: Recipe, paper: Paper) -> None:
    (one,) = found
    assert [f"{s['f']}, {s['g']}" for s in one.numbers["surfaces"]] == [row.label for row in paper.table[0].rows]


def _there(found: list[Finding], recipe: Recipe, paper: Paper) -> None:
    assert len(found) == 1


SHAPES = {
    "noise": _noise, "tightness": _tightness, "regimes": _regimes, "inference-entropy": _entropy,
    "surface": _surface, "gradients": _there, "tokens": _there,
}  # fmt: skip


@pytest.mark.slow
def test_a_recipe_at_small_scale_takes_the_real_model(smollm2: Path, safe: list[str], tmp_path: Path) -> None:
    found = ranktuner.compare(
        "out-of-distribution",
        scale="small",
        only=["DFT"],
        cells=tmp_path / "cells",
        output=tmp_path / "out",
        quiet=True,
    )
    assert found.failed == []
    assert found.finding
    tables = found.finding.numbers["tables"]
    assert [(t["model"], t["task"]) for t in tables] == [("small/Qwen2.5-Math-7B", t) for t in ("arc-c", "gpqa")]
    for table in tables:
        assert [row["label"] for row in table["rows"]] == ["original", "DFT"]
        assert all(row["samples"] == 4 * 16 for row in table["rows"])
        # The real model writes words: not every answer fails to be read, as a random model's do.
        assert any(row["verdicts"]["correct"] + row["verdicts"]["wrong"] > 0 for row in table["rows"])
