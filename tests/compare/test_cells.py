"""Cells: a key changes with what determines the result, and nothing else; who holds a cell; the choice of a grid."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ranktuner.compare import ready as readiness
from ranktuner.compare.cells import Cells, Entry, _problems_of
from ranktuner.compare.jobs import DiagnoseJob
from ranktuner.compare.planning import print_plan
from ranktuner.compare.recipe import Recipe, make_recipe, read_recipe, shipped
from ranktuner.compare.scale import scaled
from ranktuner.compare.store import Store
from ranktuner.data.encode import MATH_SUFFIX
from ranktuner.errors import (
    DataError,
    InputError,
    MissingExtraError,
    NonFiniteError,
    RankTunerError,
    UnsupportedError,
)
from ranktuner.evals.tasks import task
from ranktuner.lock import HeldError

TRAIN = {"data": {"source": ["problems"]}, "optimizer": {"epochs": 2}}


def recipe(**more: Any) -> Recipe:
    tree: dict[str, Any] = {"name": "mine", "models": ["tiny"], "methods": ["sft", "dft"], "train": TRAIN}
    return make_recipe({**tree, "problems": {"train": 32}, "eval": {"tasks": ["problems"], "n": 4}, **more})


def entries(made: Recipe, folder: Path, only: tuple[str, ...] = ()) -> list[Entry]:
    return list(Cells(made, Store(folder), only).entries())


def planned(cells: Cells) -> str:
    """What --plan prints."""
    text = io.StringIO()
    print_plan(cells, Console(file=text, width=120))
    return text.getvalue()


def keys(made: Recipe, folder: Path, stage: str) -> dict[tuple[str, int | None], str]:
    return {(e.label, e.seed): e.cell.key for e in entries(made, folder) if e.stage == stage and e.cell}


def test_every_row_is_trained_with_every_seed_and_evaluated_after_the_original(tmp_path: Path) -> None:
    found = entries(recipe(seeds=[0, 7]), tmp_path)
    stages = [(e.stage, e.label, e.seed) for e in found if e.stage in ("train", "eval")]
    rows = [(stage, label, seed) for label in ("sft", "dft") for seed in (0, 7) for stage in ("train", "eval")]
    assert stages == [("eval", "original", None), *rows]
    assert len({e.cell.key for e in found if e.cell}) == len(found) == 2 + 1 + 8


@pytest.mark.parametrize(
    "change",
    [
        {"train": {**TRAIN, "optimizer": {"epochs": 3}}},
        {"train": {**TRAIN, "lora": {"rank": 4}}},
        {"train": {**TRAIN, "batch": {"size": 256}}},
        {"problems": {"train": 33}},
        {"problems": {"train": 32, "seed": 1}},
        {"models": ["smollm2"]},
        {"seeds": [1]},
        {"methods": ["dft", "sft"]},
    ],
    ids=str,
)
def test_what_changes_a_training_changes_its_key(change: dict[str, Any], tmp_path: Path) -> None:
    before, after = keys(recipe(), tmp_path, "train"), keys(recipe(**change), tmp_path, "train")
    if "methods" in change:
        assert before == after, "the same cells in another order"
    else:
        assert not set(before.values()) & set(after.values())
        measured = [keys(made, tmp_path, "eval") for made in (recipe(), recipe(**change))]
        of_trained = [{key for (label, _), key in one.items() if label != "original"} for one in measured]
        assert not of_trained[0] & of_trained[1], "and that of every evaluation of it"


@pytest.mark.parametrize(
    "change",
    [
        {"train": {**TRAIN, "checkpoint": {"every": 3}, "telemetry": {"log_every": 5}, "batch": {"micro": 2}}},
        {"methods": [{"method": "sft", "label": "SFT"}, "dft"]},
        {"name": "other", "title": "Other"},
        {"eval": {"tasks": ["problems"], "n": 4, "k": [2], "batch": 8, "temperature": 1.0, "allow_unsafe": True}},
    ],
    ids=str,
)
def test_what_changes_no_result_changes_no_key(change: dict[str, Any], tmp_path: Path) -> None:
    for stage in ("train", "eval"):
        assert set(keys(recipe(), tmp_path, stage).values()) == set(keys(recipe(**change), tmp_path, stage).values())


def test_two_spellings_of_a_method_are_one_cell(tmp_path: Path) -> None:
    one = recipe(methods=["ranktuner(prior=prob)", {"method": "ranktuner( prior = prob, k=dynamic)", "label": "b"}])
    assert len(set(keys(one, tmp_path, "train").values())) == 1


def test_local_files_count_by_their_content_and_not_by_their_name(tmp_path: Path) -> None:
    row = json.dumps({"prompt": "a", "completion": "b"}) + "\n"
    for name, text in (("a.jsonl", row), ("b.jsonl", row), ("c.jsonl", row * 2)):
        (tmp_path / name).write_text(text)
    a, b, c = (
        keys(recipe(train={"data": {"source": [str(tmp_path / name)]}}), tmp_path, "train")
        for name in ("a.jsonl", "b.jsonl", "c.jsonl")
    )
    assert a == b
    assert not set(a.values()) & set(c.values())


def test_an_evaluation_counts_only_what_it_draws(tmp_path: Path) -> None:
    of = {
        n: set(keys(recipe(eval={"tasks": ["problems"], "n": 4, **more}), tmp_path, "eval").values())
        for n, more in enumerate([{}, {"n": 5}, {"temperature": 0.5}, {"max_new_tokens": 9}, {"seed": 1}, {"limit": 3}])
    }
    assert all(not of[0] & of[n] for n in of if n)


def test_the_recipes_share_their_cells() -> None:
    trained = {name: keys(read_recipe(name), Path("cells"), "train") for name in shipped() if read_recipe(name).methods}
    assert trained["out-of-distribution"] == trained["main-results"] == trained["inference-entropy"]
    assert trained["xi-approximations"]["max", 0] == trained["dynamic-k"]["dynamic", 0]
    assert trained["xi-approximations"]["max", 0] == trained["ablations"]["RankTuner", 0]


@pytest.mark.parametrize("scale", ["small", "tiny"])
@pytest.mark.parametrize("name", shipped())
def test_every_recipe_keeps_its_rows_and_tasks_at_every_scale(name: str, scale: str, tmp_path: Path) -> None:
    full = read_recipe(name)
    made = scaled(full, scale)
    Cells(made, Store(tmp_path)).check()
    assert [row.method for row in made.methods] == [row.method for row in full.methods]
    assert [(one.tasks, one.n, one.k) for one in made.eval] == [(one.tasks, one.n, one.k) for one in full.eval]
    assert [one.kind for one in made.diagnose] == [one.kind for one in full.diagnose]
    assert all(model.startswith(f"{scale}/") for model in made.models), "names say that it is not the model"
    if scale == "tiny":
        assert [m.removeprefix("tiny/") for m in made.models] == [m.rpartition("/")[2] for m in full.models]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["sft", "dftt"]}, "unknown method 'dftt'; did you mean 'dft'"),
        ({"methods": ["overtone(mode=mix)"]}, "the mixed target needs all logits"),
        ({"models": ["smolm2"]}, "model smolm2: there is no such folder; give a model folder, a hub id such as"),
        ({"models": ["./nowhere"]}, "model ./nowhere: there is no such folder"),
        ({"eval": {"tasks": ["gsm9k"]}}, "unknown task 'gsm9k'; did you mean 'gsm8k'"),
        ({"eval": {"tasks": ["gsm8k"], "data_dir": "."}}, "holds none of gsm8k/test.jsonl"),
        ({"train": {"data": {"source": ["nowhere.jsonl"]}}}, "nowhere.jsonl: there is no such file or folder"),
        ({"diagnose": {"kind": "tokens", "data": "problems", "methods": ["x"]}}, "unknown method 'x'"),
        ({"eval": {"tasks": ["humaneval"], "k": [1, 11]}}, "eval.k has 11 and humaneval has n = 10 samples"),
        ({"grid": {"learning_rates": [1e-3], "held_out": "problems"}}, "problems.held_out is 0; set how many"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:20],
)
def test_what_cannot_work_is_refused_before_anything_runs(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(RankTunerError) as caught:
        Cells(recipe(**change), Store(tmp_path)).check()
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_paper_file_with_a_missing_number_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "paper.toml").write_text(
        'title = "P"\n[[table]]\nid = "main"\ncolumns = ["gsm8k pass@1", "gsm8k pass@8"]\n'
        'rows = [{label = "SFT", method = "sft", values = [60.0]}]\n'
    )
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nmodels = ["tiny"]\npaper = "paper.toml"\n[eval]\ntasks = ["gsm8k"]\n'
    )
    made = read_recipe(tmp_path / "mine.toml")
    with pytest.raises(DataError, match="row 'SFT', column 'gsm8k pass@8': a number is missing"):
        Cells(made, Store(tmp_path / "cells")).check()
    (tmp_path / "paper.toml").unlink()
    with pytest.raises(DataError, match=r"paper\.toml: there is no such file of the paper's numbers"):
        Cells(made, Store(tmp_path / "cells")).check()


@pytest.mark.parametrize(
    ("change", "absent", "message"),
    [
        ({"eval": {"tasks": ["problems"], "generator": "vllm"}}, "vllm", r"eval\.generator=transformers, slowly"),
        ({}, "trl", "Training the rows of a recipe needs the package 'trl'"),
        ({}, "math_verify", r"Grading mathematics needs .* pip install 'ranktuner\[eval\]'"),
        ({}, "altair", "The report needs the package 'altair'"),
    ],
)
def test_a_machine_that_cannot_do_it_says_so_before_the_first_cell(
    change: dict[str, Any], absent: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "find_spec", lambda name: None if name == absent else name)
    with pytest.raises(MissingExtraError, match=message):
        readiness.ready(Cells(recipe(**change), Store(tmp_path)), report=True)


def test_code_without_a_sandbox_is_refused_with_the_setting_that_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranktuner.evals.sandbox.bubblewrap_or_reason", lambda: "bubblewrap (bwrap) is not installed")
    made = scaled(read_recipe("code"), "tiny")
    with pytest.raises(
        UnsupportedError, match=r"tasks humaneval, humaneval\+: no sandbox .*--set eval.allow_unsafe=true"
    ):
        readiness.ready(Cells(made, Store(tmp_path)), report=True)


@pytest.mark.parametrize("name", ["regimes", "tightness"])
def test_recipes_of_local_data_find_them_where_the_command_runs(
    name: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shared_data)
    Cells(read_recipe(name), Store(tmp_path)).check()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"minerva_math/test\.jsonl: there is no such file or folder"):
        Cells(read_recipe(name), Store(tmp_path)).check()


def test_only_takes_rows_by_their_labels(tmp_path: Path) -> None:
    assert {e.label for e in entries(recipe(), tmp_path, ("dft",)) if e.model} == {"original", "dft"}
    with pytest.raises(InputError, match=r"--only dfft: no such row in the recipe mine; did you mean 'dft'"):
        Cells(recipe(), Store(tmp_path), ("dfft",))


def test_a_grid_goes_on_with_the_lowest_held_out_nll_and_with_that_very_training(tmp_path: Path) -> None:
    made = recipe(
        methods=["sft"],
        seeds=[0, 1],
        problems={"train": 32, "held_out": 8},
        grid={"learning_rates": [1e-4, 1e-3, 1e-2], "held_out": "problems"},
    )
    store = Store(tmp_path)

    def of(stage: str) -> list[Entry]:
        return [e for e in entries(made, tmp_path) if e.stage == stage]

    assert [e.name for e in of("grid")] == ["0.0001", "0.001", "0.01"]
    assert [e.cell for e in of("train")] == [None, None], "not known before the grid has chosen"
    for entry, nll in zip(of("grid"), (2.0, 1.5, None), strict=True):
        assert entry.cell
        with store.hold(entry.cell):
            store.begin(entry.cell)
            if nll:
                store.finish(entry.cell, {"eval_nll": nll})
            else:
                store.fail(entry.cell, NonFiniteError("step 3: the gradient's norm is inf"))
    first, second = of("train")
    assert first.cell
    assert second.cell
    assert first.cell.key == next(e.cell.key for e in of("grid") if e.cell and e.name == "0.001")
    assert second.cell.inputs["optimizer"]["learning_rate"] == 1e-3
    assert second.cell.inputs["seed"] == 1


def test_one_process_holds_a_cell(tmp_path: Path) -> None:
    cell = next(e.cell for e in entries(recipe(), tmp_path) if e.cell)
    assert cell
    store = Store(tmp_path)
    code = f"""
import sys, fcntl, os
handle = os.open({str(store.folder(cell) / ".lock")!r}, os.O_RDWR | os.O_CREAT)
fcntl.lockf(handle, fcntl.LOCK_EX)
os.pwrite(handle, b"4711", 0)
print("held", flush=True)
sys.stdin.read()
"""
    store.folder(cell).mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "held\n"
        with pytest.raises(HeldError, match="process 4711"), store.hold(cell):
            pass
        other.kill()
    with store.hold(cell):
        store.begin(cell)
        assert store.state(cell) == "begun"
        store.fail(cell, MemoryError())
        assert (store.state(cell), store.failed(cell)["error"]) == ("failed", "MemoryError")  # type: ignore[index]
        store.begin(cell)
        store.finish(cell, {"seconds": 1.0})
    assert (store.state(cell), store.failed(cell)) == ("done", None)


def test_the_plan_says_what_is_there_and_what_it_takes(tmp_path: Path) -> None:
    cells = Cells(recipe(methods=["sft"]), Store(tmp_path))
    text = planned(cells)
    assert "cells    5 to do" in text
    assert "are guesses from the number of parameters" in text
    for entry in cells.entries():
        if entry.label == "original" and entry.cell:
            cells.store.folder(entry.cell).mkdir(parents=True)
            facts = {"seconds": 2.0, "tokens": 64 * 4 * 160 // 40, "base": cells.model("tiny").facts}
            cells.store.finish(entry.cell, facts)
    text = planned(cells)
    assert "2 done, 3 to do" in text
    shown = [" ".join(line.split()) for line in text.splitlines()]
    assert "eval 1 to do ≤ 41 k 80 s" in shown, "40 times as many tokens as took 2 seconds"
    assert "eval problems" in shown


def test_planning_loads_no_model_library() -> None:
    code = """
import sys, pathlib
from ranktuner.compare.cells import Cells
from ranktuner.compare.planning import plan
from ranktuner.compare.recipe import read_recipe
from ranktuner.compare.store import Store
plan(Cells(read_recipe("main-results"), Store(pathlib.Path("nowhere"))))
sys.exit("transformers" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_key_of_an_own_task_is_of_the_file_that_is_read(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder, gold in ((own, "2"), (other, "4")):
        folder.mkdir()
        (folder / "own.jsonl").write_text(f'{{"q": "?", "gold": "{gold}"}}\n')
    toml = 'name = "physics"\ndata = "own.jsonl"\ngrader = "math"\nquestion = "q"\nanswer = "gold"\n'
    (own / "own.toml").write_text(toml)
    found = task(str(own / "own.toml"))
    alone = _problems_of(str(own / "own.toml"), found, None)
    assert _problems_of(str(own / "own.toml"), found, str(other)) == alone
    (other / "own.jsonl").write_text('{"q": "?", "gold": "5"}\n')
    assert _problems_of(str(own / "own.toml"), found, str(other)) == alone
    (own / "own.jsonl").unlink()
    assert _problems_of(str(own / "own.toml"), found, str(other)) != alone


def test_tokens_are_looked_at_in_the_words_in_which_they_are_learnt(tmp_path: Path) -> None:
    tokens = {"diagnose": [{"kind": "tokens", "data": ["problems"]}]}
    data = {"source": ["problems"], "prompt_suffix": "math"}
    bare, words = recipe(**tokens), recipe(**tokens, train={**TRAIN, "data": data})
    assert not set(keys(bare, tmp_path, "diagnose").values()) & set(keys(words, tmp_path, "diagnose").values())
    jobs = [e.cell.job for made in (bare, words) for e in entries(made, tmp_path) if e.stage == "diagnose" and e.cell]
    assert [job.prompt_suffix for job in jobs if isinstance(job, DiagnoseJob)] == [None, "math"]


def test_the_plan_says_where_rows_learn_without_the_words_that_the_tasks_ask_with(tmp_path: Path) -> None:
    said = planned(Cells(recipe(), Store(tmp_path)))
    assert f'note     problems: asked with "{MATH_SUFFIX}", while the rows learn without these words; ' in said
    assert 'train.data.prompt_suffix = "math" trains with them' in said


def test_rows_that_learn_with_the_words_are_not_named(tmp_path: Path) -> None:
    data = {"source": ["problems"], "prompt_suffix": "math"}
    with_words = {"method": "dft", "train": {"data": data}}
    made, store = recipe(methods=["sft", with_words]), Store(tmp_path)
    assert "while sft learn without these words" in planned(Cells(made, store))
    assert "note" not in planned(Cells(made, store, ("dft",)))
    assert "note" not in planned(Cells(recipe(train={**TRAIN, "data": data}), store))


def test_nothing_is_said_of_tasks_that_ask_with_no_words_and_of_scaled_recipes(tmp_path: Path) -> None:
    assert "note" not in planned(Cells(recipe(eval={"tasks": ["humaneval"], "n": 4}), Store(tmp_path)))
    assert "note" not in planned(Cells(scaled(recipe(), "tiny"), Store(tmp_path)))


def test_rows_and_tasks_have_one_wording() -> None:
    assert task("gsm8k").prompt.chat == f"{{question}}\n{MATH_SUFFIX}"
