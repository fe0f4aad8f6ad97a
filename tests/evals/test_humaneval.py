"""HumanEval and HumanEval+: every reference solution passes, a mutant of each fails. Skips without the data sets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from code_cases import needs_bubblewrap, sample
from mutants import mutants, wrong_on

from ranktuner.errors import DataError
from ranktuner.evals.graders.python_code import grade
from ranktuner.evals.humaneval import answer_of_reference, problem_of_row, read_problems
from ranktuner.evals.records import Problem

bubblewrap = pytest.fixture(scope="module", name="bubblewrap")(needs_bubblewrap)
sandboxed = pytest.mark.usefixtures("bubblewrap")

BASE = "humaneval/HumanEval.jsonl"
PLUS = "humaneval_plus/HumanEvalPlus.jsonl.gz"
MINI = "humaneval_plus/HumanEvalPlus-Mini.jsonl"
PROGRAMS = "humaneval_plus/HumanEvalPlus-OriginFmt.jsonl.gz"


def verdicts(problems: Iterable[Problem], answer: Callable[[Problem], str]) -> dict[str, tuple[str, str]]:
    """Problem -> (verdict, why), of those that are not correct."""
    problems = list(problems)
    grades = grade((p, sample(p, answer(p))) for p in problems)
    found = {p.id: (g.verdict, g.why) for p, g in zip(problems, grades, strict=True)}
    return {name: said for name, said in found.items() if said[0] != "correct"}


def wrong_once(problem: Problem) -> str:
    """The reference, wrong on its last input only; where a test program decides, wrong on every call."""
    last = len(problem.gold.get("inputs", []))
    return wrong_on(answer_of_reference(problem), problem.meta["entry_point"], f"len(_calls) >= {last}")


@sandboxed
def test_every_reference_of_humaneval_passes(shared_data: Path) -> None:
    problems = read_problems(shared_data / BASE)
    assert len(problems) == 164
    assert verdicts(problems, answer_of_reference) == {}


@sandboxed
@pytest.mark.parametrize("name", [BASE, MINI])
def test_a_mutant_of_each_fails(shared_data: Path, name: str) -> None:
    problems = read_problems(shared_data / name)[::8]
    wrong = verdicts(problems, wrong_once)
    assert {verdict for verdict, _ in wrong.values()} == {"wrong"}
    assert set(wrong) == {p.id for p in problems}


@sandboxed
def test_references_of_humaneval_plus_pass_in_both_formats(shared_data: Path) -> None:
    assert verdicts(read_problems(shared_data / MINI)[::8], answer_of_reference) == {}
    assert verdicts(read_problems(shared_data / PLUS)[::16], answer_of_reference) == {}
    chosen = [p for p in read_problems(shared_data / PROGRAMS) if p.id in ("HumanEval/32", "HumanEval/33")]
    assert verdicts(chosen, answer_of_reference) == {}


@sandboxed
@pytest.mark.slow
@pytest.mark.parametrize("name", [BASE, PLUS, PROGRAMS])
def test_all_references_pass_and_all_mutants_fail(shared_data: Path, name: str) -> None:
    problems = read_problems(shared_data / name)
    assert len(problems) == 164
    assert verdicts(problems, answer_of_reference) == {}
    wrong = verdicts(problems, wrong_once)
    assert {verdict for verdict, _ in wrong.values()} == {"wrong"}
    assert len(wrong) == 164


@sandboxed
def test_the_original_solutions_pass_the_plus_inputs_and_plus_sees_more_than_base(shared_data: Path) -> None:
    """A solution that is wrong on plus inputs only: right for HumanEval, wrong for HumanEval+, and `why` says plus."""
    (plus,) = [p for p in read_problems(shared_data / MINI) if p.id == "HumanEval/0"]
    (base,) = [p for p in read_problems(shared_data / BASE) if p.id == "HumanEval/0"]
    answer = wrong_on(answer_of_reference(base), "has_close_elements", f"len(_calls) > {plus.gold['base']}")
    (by_base,) = grade([(base, sample(base, answer))])
    (by_plus,) = grade([(plus, sample(plus, answer))])
    assert (by_base.verdict, by_plus.verdict) == ("correct", "wrong")
    assert "(input 8 of 19, plus)" in by_plus.why


@sandboxed
def test_a_solution_that_answers_chats_passes_in_all_its_forms(shared_data: Path) -> None:
    problems = read_problems(shared_data / BASE)[::40]

    def fenced(problem: Problem) -> str:
        return f"Here you are:\n```python\n{problem.question}{answer_of_reference(problem)}\n```\nThat is it."

    assert verdicts(problems, fenced) == {}
    assert verdicts(problems, lambda p: answer_of_reference(p).strip()) == {}
    assert verdicts(problems, lambda p: answer_of_reference(p) + "\nassert False\nprint(input())\n") == {}


def test_mutants_differ_in_one_place() -> None:
    program = "def f(n):\n    return n + 1 if n < 3 else 0\n"
    found = set(itertools.islice(mutants(program, 0), 20))
    assert "def f(n):\n    return n - 1 if n < 3 else 0" in found
    assert "def f(n):\n    return n + 1 if n <= 3 else 0" in found
    assert "def f(n):\n    return n + 1 if not n < 3 else 0" in found
    assert len(found) == 9


def test_rows_are_read_with_file_and_line(tmp_path: Path) -> None:
    row = {"task_id": "X/0", "prompt": "def f(): ", "entry_point": "f", "canonical_solution": "pass", "test": "t"}
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(row) + "\n\n" + json.dumps({**row, "task_id": "X/1"}) + "\n")
    assert [p.id for p in read_problems(path)] == ["X/0", "X/1"]
    path.write_text(json.dumps(row) + "\n" + json.dumps({"task_id": "X/1", "test": ""}))
    with pytest.raises(
        DataError, match=r"set\.jsonl:2: no field '(prompt|entry_point)'; the row has 'task_id', 'test'"
    ):
        read_problems(path)
    path.write_text(json.dumps(row) + "\n[1]\n")
    with pytest.raises(DataError, match=r"set\.jsonl:2: '\[1\]' is not a JSON object"):
        read_problems(path)
    path.write_text(json.dumps(row) + "\n{oops\n")
    with pytest.raises(DataError, match=r"set\.jsonl:2: not JSON: .*expected one JSON object a line"):
        read_problems(path)
    with pytest.raises(DataError, match=r"no file .*none\.jsonl: expected JSON lines"):
        read_problems(tmp_path / "none.jsonl")
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"broken\.jsonl\.gz: cannot be read: "):
        read_problems(broken)


def test_what_a_plus_row_becomes() -> None:
    row = {
        "task_id": "HumanEval/32", "prompt": "p", "entry_point": "find_zero", "canonical_solution": "s",
        "base_input": [[[1]]], "plus_input": [[[2]], [[3]]], "atol": 0.0001, "test": "base only",
    }  # fmt: skip
    problem = problem_of_row(row, "1")
    assert problem.gold == {"inputs": [[[1]], [[2]], [[3]]], "atol": 0.0001, "base": 1}
    assert problem.meta["oracle"] == "root_of_polynomial"
    assert "oracle" not in problem_of_row({**row, "entry_point": "other"}, "1").meta
