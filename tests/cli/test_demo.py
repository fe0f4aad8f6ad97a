"""`ranktuner demo`: its recipe, its times, and (slow) the whole of it with the real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranktuner.cli import demo as command
from ranktuner.cli import main
from ranktuner.compare.recipe import read_recipe
from ranktuner.errors import MissingExtraError
from ranktuner.findings import Finding

ROWS = ["original", "sft", "dft", "ranktuner(prior=uniform)", "ranktuner(prior=prob)"]


def test_the_recipe_is_what_the_front_page_says() -> None:
    recipe = read_recipe("demo")
    assert recipe.models == ["smollm2"]
    assert ["original", *(row.label for row in recipe.methods)] == ROWS
    assert recipe.problems is not None
    assert recipe.problems.test >= 64
    (section,) = recipe.eval
    assert section.limit is None
    assert max(section.k or [0]) > 1
    assert [one.kind for one in recipe.diagnose] == ["noise", "tokens"]
    assert not any(row.train for row in recipe.methods), "no row has settings of its own"


def result(folder: Path, keys: list[str]) -> Path:
    """A finished comparison, as far as the times need it."""
    cells = []
    for key in keys:
        place = folder / "cells" / key
        place.mkdir(parents=True, exist_ok=True)
        (place / "done.json").write_text(json.dumps({"seconds": 12.04, "tokens": 7, "ended": 1100.0}))
        cells.append({"key": key, "stage": key.split("-")[0], "label": "sft", "name": "x", "folder": str(place)})
    # A cell that stands in two places is one cell.
    listed = [*cells, cells[0]]
    (folder / "compare.json").write_text(json.dumps({"cells": listed}))
    return folder


def test_the_times_are_of_each_call_and_of_every_cell(tmp_path: Path) -> None:
    folder = result(tmp_path, ["train-a", "train-b", "eval-a"])
    first = command.times_of(folder, 1000.0, 1300.04)
    assert first.n == 3
    assert first.numbers["calls"] == [{"seconds": 300.0, "cells_made": 3}]
    assert command.said(first) == "time     300 s (2 x train 24 s, 1 x eval 12 s)"
    assert set(first.provenance["hardware"]) == {"cpu", "cores", "gpu"}
    first.save(folder / command.TIMES)
    second = command.times_of(folder, 2000.0, 2004.2)
    assert [call["cells_made"] for call in second.numbers["calls"]] == [3, 0]
    assert command.said(second) == "time     4 s (0 of 3 cells made now, the rest was there)"
    second.save(folder / command.TIMES)
    assert len(Finding.load(folder / command.TIMES).numbers["calls"]) == 2


def test_what_is_not_installed_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "NEEDED", ("transformers", "no_such_package"))
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 1
    assert "no_such_package is not installed: pip install 'ranktuner[all]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert issubclass(MissingExtraError, ImportError)


def run(folder: Path, *arguments: str) -> str:
    """Run the command as a user does; return what it printed."""
    path = os.pathsep.join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    environment = {**os.environ, "PYTHONPATH": path}
    call = [sys.executable, "-m", "ranktuner", "demo", *arguments]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_demo_with_the_real_model_has_the_shape_of_its_recipe_and_is_quick_again(tmp_path: Path) -> None:
    printed = run(tmp_path, "--scale", "small")
    folder = tmp_path / "runs" / "demo-small"
    found: Any = Finding.load(folder / "findings" / "comparison.json")
    (table,) = found.numbers["tables"]
    assert [row["label"] for row in table["rows"]] == ROWS
    assert found.numbers["failed"] == []
    assert [at["k"] for at in table["rows"][0]["pass_at_k"]] == [1, 2]
    assert all(len(row["to_original"]) == len(row["to_best"]) == 2 for row in table["rows"][1:])
    kinds = sorted(Finding.load(path).kind for path in (folder / "findings").glob("*.json"))
    assert kinds == ["comparison", "noise", "tokens"]
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f'<section id="{part}"' in html for part in ("comparison", "training", "tokens", "diagnostics"))
    assert "time     " in printed
    again = run(tmp_path, "--scale", "small")
    assert again.split("\ntime ")[0] == printed.split("\ntime ")[0], "the same table from what was kept"
    times = Finding.load(folder / "times.json")
    assert [call["cells_made"] for call in times.numbers["calls"]] == [times.n, 0]
    assert times.numbers["calls"][1]["seconds"] < 60
