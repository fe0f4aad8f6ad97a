"""A user's own task: what a good TOML gives, and what a bad one says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ranktuner.errors import DataError, InputError
from ranktuner.evals.tasks import task


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKTUNER_CACHE", str(tmp_path / "cache"))


def make(folder: Path, toml: str, rows: list[dict[str, Any]]) -> Path:
    (folder / "own.toml").write_text(toml)
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "own.toml"


def test_mathematics_with_other_field_names_prompt_and_decoding(tmp_path: Path) -> None:
    toml = r"""
        name = "physics"
        data = "own.jsonl"
        grader = "math"
        question = "q"
        answer = "gold"
        tolerance = 0.01
        expected = 3
        n = 4
        ks = [1, 4]
        [prompt]
        chat = "Solve {question} in \\boxed{}."
        system = "You are a physicist."
        [decoding]
        temperature = 0.6
    """
    own = task(make(tmp_path, toml, [{"q": "g?", "gold": "$9.81$"}, {"q": "c?", "gold": 3e8}]))
    loaded = own.load()
    assert [(p.id, p.gold, p.meta["tolerance"]) for p in loaded.problems] == [
        ("0", "9.81", 0.01),
        ("1", "300000000.0", 0.01),
    ]
    assert (loaded.report.missing, loaded.report.unaccepted) == (1, ())
    assert own.messages(loaded.problems[0]) == [
        {"role": "system", "content": "You are a physicist."},
        {"role": "user", "content": "Solve g? in \\boxed{}."},
    ]
    assert own.plain(loaded.problems[0]) == "Solve g? in \\boxed{}.\n"
    assert (own.decoding.temperature, own.decoding.max_new_tokens, own.n, own.ks) == (0.6, 4096, 4, (1, 4))


def test_choices_as_a_list_or_by_letter_and_answers_as_letter_or_text(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "?", "choices": ["x", "y"], "answer": "B"},
        {"id": "b", "question": "?", "choices": {"a": "x", "b": "y"}, "answer": "y"},
        {"id": "c", "question": "?", "choices": ["x", "y"], "answer": "z"},
    ]
    loaded = task(make(tmp_path, 'name = "own"\ndata = "own.jsonl"\ngrader = "choice"', rows)).load()
    assert [(p.id, p.gold, p.meta["choices"]) for p in loaded.problems] == [
        ("a", "B", {"A": "x", "B": "y"}),
        ("b", "B", {"A": "x", "B": "y"}),
    ]
    assert loaded.report.dropped == (
        ("own.jsonl:3", "answer 'z' is neither one of the letters A, B nor one of the choices"),
    )


def test_code(tmp_path: Path) -> None:
    row = {"question": "def one():\n", "entry_point": "one", "tests": "def check(f):\n    assert f() == 1\n"}
    own = task(make(tmp_path, 'name = "own"\ndata = "own.jsonl"\ngrader = "code"', [row]))
    (problem,) = own.load().problems
    assert (own.n, own.ks, own.grader) == (10, (1, 10), "code")
    assert problem.meta["entry_point"] == "one"
    assert problem.gold["tests"] == row["tests"]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('data = "x"', "no key 'name'"),
        ('name = "x"', "no key 'data'"),
        ('name = "x"\ndata = "y"\nanswr = "z"', r"unknown key 'answr'; did you mean 'answer'\?"),
        ('name = "x"\ndata = "y"\ngrader = "maths"', r"grader is 'maths'; did you mean 'math'\?"),
        ('name = "a/b"\ndata = "y"', "name is 'a/b'; expected letters"),
        ('name = "x"\ndata = "y"\nexpected = "many"', "expected is 'many'; expected int"),
        ('name = "x"\ndata = "y"\nn = true', "n is True; expected int"),
        ('name = "x"\ndata = "y"\nn = 4\nks = [8]', r"n = 4, ks = \[8\]; expected .* every k between 1 and n"),
        ('name = "x"\ndata = "y"\n[prompt]\nchat = "hi"', r"chat has no \{question\}"),
        ('name = "x"\ndata = "y"\n[prompt]\nstopp = []', r"\[prompt\]: unknown key 'stopp'; did you mean 'stop'\?"),
        ('name = "x"\ndata = "y"\n[decoding]\ntop_p = 2', "top_p above 0 and at most 1"),
        ('name = "x"\ndata = "y"\n[decoding]\ntemprature = 1', r"did you mean 'temperature'\?"),
        ("name = ", "not TOML"),
    ],
)
def test_a_bad_file_is_answered_by_name(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        task(make(tmp_path, toml, []))
    assert "own.toml" in str(error.value)


def test_a_missing_task_file_or_data_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no task file .*absent\.toml"):
        task(tmp_path / "absent.toml")
    own = task(make(tmp_path, 'name = "x"\ndata = "other.jsonl"', []))
    with pytest.raises(DataError, match=r"holds none of other\.jsonl; get it: .*own\.toml names it as its data"):
        own.load()


def test_empty_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"own\.jsonl is empty; expected a row for each problem"):
        task(make(tmp_path, 'name = "x"\ndata = "own.jsonl"', [])).load()


def test_the_file_a_task_names_goes_before_a_data_folder_that_holds_another_of_that_name(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    toml = 'name = "physics"\ndata = "own.jsonl"\ngrader = "math"\nquestion = "q"\nanswer = "gold"\n'
    path = make(own, toml, [{"q": "1 + 1?", "gold": "2"}])
    make(other, toml, [{"q": "2 + 2?", "gold": "4"}])
    for data_dir in (None, other, tmp_path):
        assert [p.gold for p in task(str(path)).load(data_dir).problems] == ["2"]
    (own / "own.jsonl").unlink()
    assert [p.gold for p in task(str(path)).load(other).problems] == ["4"]
