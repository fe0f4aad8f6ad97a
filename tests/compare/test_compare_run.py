"""A comparison from recipe to report on tiny models: every stage, failures that stay in their place, several jobs."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ranktuner
from ranktuner.cli import main
from ranktuner.compare.cells import Cells
from ranktuner.compare.recipe import read_recipe
from ranktuner.compare.run import Comparison, Runner
from ranktuner.compare.store import Store
from ranktuner.compare.work import Worker
from ranktuner.errors import DataError, InputError, NonFiniteError, RankTunerError
from ranktuner.findings import Finding

RECIPE = """
name = "mine"
models = ["tiny"]
methods = ["sft", {method = "dft", label = "DFT"}]
[problems]
train = 32
test = 4
held_out = 24
steps = [2]
[train.data]
source = ["problems"]
max_length = 256
[train.optimizer]
max_steps = 2
learning_rate = 1e-2
[train.batch]
size = 8
[eval]
tasks = ["problems"]
n = 2
k = [1, 2]
max_new_tokens = 4
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of cells for all tests here, as one machine has it."""
    return tmp_path_factory.mktemp("cells")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def run(recipe: Path, cells: Path, **more: Any) -> Comparison:
    return ranktuner.compare(recipe, **{"cells": cells, "output": recipe.parent / "out", "quiet": True, **more})


def manifest(output: Path) -> Any:
    return json.loads((output / "compare.json").read_text())


def numbers(found: Comparison) -> Any:
    assert found.finding
    return json.loads(json.dumps(found.finding.numbers))


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the cells that are done from here on."""
    kinds: list[str] = []
    do = Worker.do

    def noted(self: Worker, cell: Any, folder: Path) -> Any:
        kinds.append(cell.kind)
        return do(self, cell, folder)

    monkeypatch.setattr(Worker, "do", noted)
    return kinds


def test_a_recipe_becomes_a_table_a_report_and_a_manifest(
    recipe: Path, cells: Path, worked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--cells", str(cells), "--output", str(recipe.parent / "out"), "--quiet"]
    assert main(["compare", str(recipe), *options]) == 0
    shown = capsys.readouterr().out
    assert "tiny on problems: 4 problems" in shown
    assert f"report   {recipe.parent / 'out' / 'report.html'}" in shown.replace("\n", "")
    assert (recipe.parent / "out" / "report.html").stat().st_size > 10_000
    runs = json.loads((recipe.parent / "out" / "report.json").read_text())["runs"]
    assert [one["name"] for one in runs] == ["sft", "DFT"], "trainings go by the labels of their rows"
    (table,) = Finding.load(recipe.parent / "out" / "findings" / "comparison.json").numbers["tables"]
    assert [row["label"] for row in table["rows"]] == ["original", "sft", "DFT"]
    assert [[at["k"] for at in row["pass_at_k"]] for row in table["rows"]] == [[1, 2]] * 3
    listed = manifest(recipe.parent / "out")["cells"]
    assert [(one["stage"], one["label"], one["state"]) for one in listed if one["stage"] in ("train", "eval")] == [
        (stage, label, "done")
        for stage, label in (
            *(("eval", "original"), ("train", "sft"), ("eval", "sft")),
            *(("train", "DFT"), ("eval", "DFT")),
        )
    ]
    assert all((Path(one["folder"]) / "done.json").exists() for one in listed)
    assert sorted(worked) == sorted(["model", "problems", "eval", "train", "eval", "train", "eval"])
    assert not list(cells.glob("train-*/run/checkpoints/*")), "a finished training keeps its model only"


def test_what_is_there_is_not_done_again_whoever_asked_for_it(recipe: Path, cells: Path, worked: list[str]) -> None:
    first = run(recipe, cells)
    worked.clear()
    again = run(recipe, cells)
    other = recipe.with_name("other.toml")
    other.write_text(RECIPE.replace('"mine"', '"other"').replace('"sft", {', '{method = "sft", label = "plain"}, {'))
    third = run(other, cells, output=recipe.parent / "elsewhere")
    assert worked == []
    assert numbers(again) == numbers(first)
    assert numbers(third)["tables"][0]["rows"][2]["pass_at_k"] == numbers(first)["tables"][0]["rows"][2]["pass_at_k"]


def test_another_k_is_computed_from_the_samples_that_are_there(recipe: Path, cells: Path, worked: list[str]) -> None:
    run(recipe, cells, sets=["eval.n=5", "eval.k=[1]"])
    worked.clear()
    found = numbers(run(recipe, cells, sets=["eval.n=5", "eval.k=[3]"]))
    assert worked == []
    assert found["tables"][0]["k"] == 3
    assert all(3 in [at["k"] for at in row["pass_at_k"]] for row in found["tables"][0]["rows"])


def test_only_runs_some_rows_and_the_table_shows_what_is_finished(recipe: Path, cells: Path) -> None:
    found = numbers(run(recipe, cells, only=["DFT"]))
    assert [row["label"] for row in found["tables"][0]["rows"]] == ["original", "DFT"]


def test_a_data_folder_for_all_tasks_does_not_touch_the_generated_ones(recipe: Path, cells: Path) -> None:
    found = run(recipe, cells, only=["sft"], sets=[f"eval.data_dir={recipe.parent}", "eval.seed=3"])
    assert found.failed == []


def test_two_recipes_do_not_share_an_output(recipe: Path, cells: Path) -> None:
    run(recipe, cells)
    other = recipe.with_name("other.toml")
    other.write_text(RECIPE.replace('"mine"', '"other"'))
    with pytest.raises(InputError, match=r"holds the result of the recipe 'mine' .*this is 'other' .*choose another"):
        run(other, cells)
    with pytest.raises(InputError, match=r"the recipe 'mine' .*, full\), this is 'mine' .*, tiny\)"):
        run(recipe, cells, scale="tiny")
    (recipe.parent / "full").mkdir()
    (recipe.parent / "full" / "thesis.tex").write_text("all of it")
    with pytest.raises(InputError, match=r"the folder is not empty and holds no comparison \(no compare\.json\)"):
        run(recipe, cells, output=recipe.parent / "full")
    recipe.write_text(RECIPE.replace("n = 2", "n = 3"))
    assert numbers(run(recipe, cells))["tables"][0]["rows"][0]["n_least"] == 3, "the same file may be worked on"
    tree = {"name": "mapped", "models": ["tiny"], "problems": {"test": 4}}
    eval_ = {"tasks": ["problems"], "n": 1, "max_new_tokens": 2}
    at = {"cells": cells, "output": recipe.parent / "mapped", "quiet": True}
    ranktuner.compare({**tree, "eval": eval_}, **at)
    with pytest.raises(InputError, match=r"they differ in eval: .*choose another --output"):
        ranktuner.compare({**tree, "eval": {**eval_, "n": 2}}, **at)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (MemoryError(), "MemoryError"),
        ("cuda", "CUDA out of memory"),
    ],
    ids=["disk", "memory", "gpu"],
)
def test_a_failed_cell_is_marked_and_the_rest_goes_on(
    error: Any, said: str, recipe: Path, cells: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import torch

    raised = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB") if error == "cuda" else error
    do = Worker.do

    def sometimes(self: Worker, cell: Any, folder: Path) -> Any:
        if cell.kind == "train" and cell.job.config.method == "sft":
            raise raised
        return do(self, cell, folder)

    # Cells of their own: these fail, whatever other tests have done.
    own = ["--set", f"train.optimizer.weight_decay=0.0{len(said)}", "--cells", str(cells)]
    options = [*own, "--output", str(recipe.parent / "out"), "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "do", sometimes)
        assert main(["compare", str(recipe), *options]) == 1
    shown = capsys.readouterr()
    assert f"FAILED train (tiny, sft, 0): {said}" in shown.err or said in shown.err
    assert "1 cell failed; everything else is done. The same command tries them again." in shown.err
    assert f"failed: sft (tiny, seed 0) at train: {said}" in shown.out.replace("\n", " ") or said in shown.out
    found = Finding.load(recipe.parent / "out" / "findings" / "comparison.json").numbers
    rows = found["tables"][0]["rows"]
    assert [(row["label"], bool(row["samples"]), [f["stage"] for f in row["failed"]]) for row in rows] == [
        ("original", True, []),
        ("sft", False, ["train"]),
        ("DFT", True, []),
    ]
    states = {(c["stage"], c["label"]): c for c in manifest(recipe.parent / "out")["cells"]}
    assert states["train", "sft"]["state"] == states["eval", "sft"]["state"] == "failed"
    assert states["eval", "sft"]["needs"] == Path(states["train", "sft"]["folder"]).name
    assert said in (Path(states["train", "sft"]["folder"]) / "error.txt").read_text()
    assert main(["compare", str(recipe), *options]) == 0, "a rerun tries it again"
    found = Finding.load(recipe.parent / "out" / "findings" / "comparison.json").numbers
    assert (found["failed"], [row["label"] for row in found["tables"][0]["rows"]]) == ([], ["original", "sft", "DFT"])


def test_data_that_fail_leave_every_row_marked_and_say_so_once(
    recipe: Path, cells: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: Worker, cell: Any, folder: Path) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert not run(recipe, cells).failed  # the model is there, whichever test came first
    monkeypatch.setattr(Worker, "do", never)
    found = run(recipe, cells, sets=["problems.seed=99"])
    assert [(one["stage"], one["label"]) for one in found.failed] == [("prepare", "")]
    assert {(one["label"], one["stage"]) for one in numbers(found)["failed"]} >= {("sft", "train"), ("DFT", "train")}


def test_a_result_that_cannot_be_written_is_no_loss(recipe: Path, cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("ranktuner.report.write", full, raising=False)
        patch.setattr("ranktuner.report.page.write", full)
        with pytest.raises(
            RankTunerError, match=r"the result could not be written \(No space left.*cell is kept: make"
        ):
            run(recipe, cells)
        patch.setattr("ranktuner.evals.run.grade_again", full)
        with pytest.raises(RankTunerError, match="could not be written"):
            run(recipe, cells, sets=["eval.n=5", "eval.k=[3, 4]"])
    assert not run(recipe, cells).failed


def test_ctrl_c_says_how_to_go_on(recipe: Path, cells: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def stop(self: Runner) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "run_all", stop)
    assert main(["compare", str(recipe), "--cells", str(cells), "-o", str(recipe.parent / "o"), "--quiet"]) == 130
    assert "stopped: what is finished is kept; the same command goes on from there" in capsys.readouterr().err


def test_jobs_run_beside_each_other_and_make_the_same_table(recipe: Path, tmp_path: Path) -> None:
    """As `ranktuner compare R --print-jobs | xargs -P`, two at once, with a grid: each waits for what another does."""
    recipe.write_text(
        RECIPE.replace('"sft", {method = "dft", label = "DFT"}', '{method = "dft", label = "D F"}')
        + '[grid]\nlearning_rates = [1e-2, 1e-3]\nheld_out = "problems"\nrows = 8\n'
    )
    where = ["--cells", str(tmp_path / "own")]
    printed = subprocess.run(
        [sys.executable, "-m", "ranktuner", "compare", str(recipe), *where, "--print-jobs"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = printed.stdout.splitlines()
    assert len(lines) == 4, "two candidates, the original, and the row that the grid chooses for"
    assert "4 jobs, in any order and at once" in printed.stderr
    done = subprocess.run(
        ["xargs", "-d", "\\n", "-P", "2", "-I{}", "sh", "-c", "{}"],
        input=printed.stdout, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--resume" not in done.stderr, "what a training by itself says of the next command would mislead here"
    assert "ranktuner eval --model" not in done.stderr
    again = subprocess.run(
        [sys.executable, "-m", "ranktuner", "compare", str(recipe), *where, "--print-jobs"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert again.stdout == "", "nothing is left"
    found = run(recipe, tmp_path / "own")
    assert not found.failed
    (grid,) = numbers(found)["grid"]
    best = min(grid["held_out_nll"], key=lambda one: one["nll"])
    assert grid["chosen"] == best["learning_rate"]
    alone = run(recipe, tmp_path / "alone", output=tmp_path / "alone-out")
    assert numbers(alone) == numbers(found)


def test_a_learning_rate_that_diverges_has_lost_and_is_no_failure(
    recipe: Path, cells: Path, monkeypatch: pytest.MonkeyPatch, worked: list[str]
) -> None:
    do = Worker.do

    def diverging(self: Worker, cell: Any, folder: Path) -> Any:
        found = do(self, cell, folder)
        if cell.kind == "train" and cell.job.config.optimizer.learning_rate > limit:
            raise NonFiniteError("step 2: the gradient's norm is inf")
        return found

    monkeypatch.setattr(Worker, "do", diverging)
    recipe.write_text(
        RECIPE.replace('"sft", {method = "dft", label = "DFT"}', '"dft"')
        + '[grid]\nlearning_rates = [1e-3, 1e6]\nheld_out = "problems"\nrows = 8\n'
    )
    limit = 1.0
    found = run(recipe, cells)
    assert (found.failed, numbers(found)["failed"]) == ([], [])
    (grid,) = numbers(found)["grid"]
    assert grid["chosen"] == 1e-3
    assert grid["held_out_nll"][1] == {"learning_rate": 1e6, "nll": "diverged"}
    worked.clear()
    assert numbers(run(recipe, cells)) == numbers(found)
    assert worked == [], "it would diverge again"
    limit = 0.0
    lost = run(recipe, cells, sets=["train.optimizer.weight_decay=0.077"])
    assert [(one["label"], one["stage"]) for one in lost.failed] == [("dft", "grid")]
    assert "every learning rate of the grid diverged; give smaller ones" in lost.failed[0]["error"]
    (row,) = [one for one in numbers(lost)["tables"][0]["rows"] if one["label"] == "dft"]
    assert [one["stage"] for one in row["failed"]] == ["grid"]


def test_rows_that_are_trained_on_are_no_held_out_rows(recipe: Path, tmp_path: Path) -> None:
    def rows(*numbers: int) -> str:
        return "".join(json.dumps({"question": f"{n}+1?", "answer": str(n + 1)}) + "\n" for n in numbers)

    (tmp_path / "train.jsonl").write_text(rows(*range(10)))
    (tmp_path / "held.jsonl").write_text(rows(*range(5, 30)))
    recipe.write_text(
        RECIPE.replace('["problems"]\nmax_length', f'["{tmp_path}/train.jsonl"]\nmax_length')
        + f'[grid]\nlearning_rates = [1e-3]\nheld_out = "{tmp_path}/held.jsonl"\nrows = 12\n'
    )
    found = Cells(read_recipe(recipe), Store(tmp_path / "cells"))
    cell = found.held_out(found.rows[0]).cell
    assert cell
    folder = tmp_path / "here"
    folder.mkdir()
    facts = Worker(tmp_path / "cells", print, quiet=True).do(cell, folder)
    assert (facts["rows"], facts["trained_too"]) == (12, 5)
    held = [json.loads(line)["messages"] for line in (folder / "held_out.jsonl").read_text().splitlines()]
    asked = [int(messages[0]["content"].partition("+")[0]) for messages in held]
    assert len(set(asked)) == 12
    assert min(asked) >= 10
    (tmp_path / "held.jsonl").write_text(rows(1, 2))
    with pytest.raises(DataError, match="every row of it is trained on too; give other held-out rows"):
        Worker(tmp_path / "cells", print, quiet=True).do(cell, folder)


def test_an_unknown_cell_is_named(recipe: Path, cells: Path) -> None:
    with pytest.raises(InputError, match=r"--cell 0123: the recipe mine has no such cell .*print the jobs again"):
        run(recipe, cells, cell=["0123"])


def test_recipes_are_listed_and_a_wrong_name_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--list"]) == 0
    assert "main-results           Main results: mathematics" in capsys.readouterr().out
    assert main(["compare", "main-result"]) == 1
    assert "unknown recipe 'main-result'; did you mean 'main-results'" in capsys.readouterr().err
    assert main(["compare", "main-results", "--scale", "tny"]) == 1
    assert "--scale tny: unknown; did you mean 'tiny'" in capsys.readouterr().err
