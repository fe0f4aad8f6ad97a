"""The code grader: verdicts and their reasons, limits and second tries, order, and bad problems."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from code_cases import (
    BY_INPUTS,
    BY_OUTPUTS,
    BY_TESTS,
    META,
    PROBLEMS,
    PROMPT,
    RIGHT,
    function,
    graded,
    needs_bubblewrap,
    sample,
)  # fmt: skip

from ranktuner.errors import DataError, InputError
from ranktuner.evals.graders.code_run import Time
from ranktuner.evals.graders.code_values import same
from ranktuner.evals.graders.python_code import grade
from ranktuner.evals.humaneval import answer_of_reference, problem_of_row, user_problem
from ranktuner.evals.records import Grade, Problem

pytestmark = pytest.mark.usefixtures("bubblewrap")
bubblewrap = pytest.fixture(scope="module", name="bubblewrap")(needs_bubblewrap)


@pytest.mark.parametrize("kind", list(PROBLEMS))
def test_a_right_answer_is_correct_and_a_wrong_one_says_where(kind: str) -> None:
    right, fenced, wrong, raising = graded(
        PROBLEMS[kind],
        RIGHT,
        f"```python\n{PROMPT}{RIGHT}```",
        RIGHT.replace("+ by", "+ abs(by)"),
        function("return [1 / by for _ in numbers]"),
    )
    assert (right.verdict, right.answer) == ("correct", RIGHT)
    assert right.why == {"tests": "the tests pass, 6 calls"}.get(kind, "4 of 4 inputs")
    assert fenced.verdict == "correct"
    assert wrong.verdict == "wrong"
    assert {
        "inputs": "shifted([7], -7) (input 3 of 4, plus) returned [14], expected [0]",
        "outputs": "shifted([7], -7) (input 3 of 4) returned [14], expected [0]",
        "tests": "shifted([1], -1) returned [2]; the tests stop at `assert candidate([number], -number) == [0], "
        '"one each"`, AssertionError: one each',
    }[kind] == wrong.why
    assert raising.verdict == "wrong"
    assert "shifted([1, 2], 3)" in raising.why


def test_what_a_call_came_to_is_told() -> None:
    texts = {
        function("raise KeyError('no ' + str(by))"): "raised KeyError: 'no 3'",
        function("return object()"): "returned a object object, which is not plain data",
        "import nothing_of_this_name\n" + function("return []"): "running the definitions raised ModuleNotFoundError",
        function("return 10 ** 5000"): "returned a value with a very long integer",
        function("return 'x' * 3000"): "returned 'xxx",
        function("import os; os._exit(7)"): "the process ended before it answered (exit status 7)",
    }
    for answer, part in zip(graded(BY_INPUTS, *texts), texts.values(), strict=True):
        assert answer.verdict == "wrong"
        assert part in answer.why
        assert len(answer.why) <= 400


def test_no_code_is_unparsed_or_truncated_and_a_failed_generation_is_an_error() -> None:
    prose = "I would use a list comprehension here"
    items = [
        (BY_INPUTS, sample(BY_INPUTS, prose)),
        (BY_INPUTS, sample(BY_INPUTS, prose, finish="length")),
        (BY_INPUTS, sample(BY_INPUTS, RIGHT, finish="length")),
        (BY_INPUTS, sample(BY_INPUTS, " \n")),
        (BY_INPUTS, replace(sample(BY_INPUTS, "", finish="error"), note="the server said 500")),
    ]
    verdicts = [(g.verdict, g.why) for g in grade(items)]
    assert [verdict for verdict, _ in verdicts] == ["unparsed", "truncated", "correct", "unparsed", "error"]
    assert verdicts[0][1].startswith("SyntaxError")
    assert verdicts[1][1].startswith("the limit of new tokens was hit")
    assert verdicts[3][1] == "the answer is empty"
    assert verdicts[4][1] == "the server said 500"


def test_a_program_of_another_harness_runs_as_it_stands() -> None:
    fenced, whole = graded(BY_INPUTS, f"```\n{PROMPT}{RIGHT}```", PROMPT + RIGHT, form="program")
    assert (fenced.verdict, whole.verdict) == ("wrong", "correct")
    assert "SyntaxError" in fenced.why


HELPERS = '''def scale():
    return 10


def scaled(x):
    """Ten times x."""
'''
HELPED_TESTS = """
def check(candidate):
    assert candidate(3) == 3 * scale()
    assert scaled(2) == candidate(2) == 20
"""
HELPED = Problem(
    "own/helped",
    HELPERS,
    {"tests": HELPED_TESTS},
    {"entry_point": "scaled", "prompt": HELPERS, "reference": "    return 10 * x\n"},
)


def test_names_in_the_tests_mean_the_reference_not_the_candidate() -> None:
    """A candidate that replaces the prompt's helper does not reach the tests, and `scaled` there is the reference."""
    right, forged = graded(
        HELPED, "    return scale() * x\n", "def scale():\n    return 0\n\ndef scaled(x):\n    return 0\n"
    )
    assert right.verdict == "correct"
    assert forged.verdict == "wrong"
    bare = replace(HELPED, meta={"entry_point": "scaled", "prompt": HELPERS})
    right, forged = graded(
        bare, "    return scale() * x\n", "def scale():\n    return 0\n\ndef scaled(x):\n    return 0\n"
    )
    assert right.verdict == "correct"
    assert forged.verdict == "wrong"


def by_tests(program: str, name: str = "f") -> Problem:
    return Problem("own/any", "", {"tests": program}, {"entry_point": name, "prompt": ""})


def test_values_of_every_plain_type_reach_the_tests() -> None:
    tests = """
import collections, math
from fractions import Fraction
def check(candidate):
    for value in (None, True, 0, -5, 2**100, 0.1, float("inf"), "é\\ud800", b"\\x00", 1j, (1, (2, [3])), {1, 2},
                  frozenset("ab"), {"a": [1], (1, 2): None}, range(2, 9, 3), Fraction(1, 3), [], (), {}, set()):
        back = candidate(value)
        assert back == value and type(back) is type(value), value
    assert math.isnan(candidate(math.nan))
    assert tuple(candidate(n for n in range(3))) == (0, 1, 2)
    assert candidate(collections.Counter("aab")) == {"a": 2, "b": 1}
    assert candidate(x=7) == 7
"""
    (answer,) = graded(by_tests(tests), "def f(x):\n    return x\n")
    assert answer.verdict == "correct", answer.why


def test_exceptions_and_generators_cross_and_arguments_are_copies() -> None:
    tests = """
def check(candidate):
    try:
        candidate("raise")
        assert False
    except KeyError as error:
        assert "gone" in str(error)
    try:
        candidate("own")
        assert False
    except RuntimeError as error:
        assert "Mine: of my own" in str(error)
    assert list(candidate("generate")) == [1, 2]
    kept = [3, 1, 2]
    assert candidate(kept) == [1, 2, 3]
    assert kept == [3, 1, 2]
"""
    program = """
class Mine(Exception):
    pass
def f(x):
    if x == "raise":
        raise KeyError("gone")
    if x == "own":
        raise Mine("of my own")
    if x == "generate":
        return (n for n in (1, 2))
    x.sort()
    return x
"""
    (answer,) = graded(by_tests(tests), program)
    assert answer.verdict == "correct", answer.why


def test_an_exception_cannot_end_a_loop_of_the_tests() -> None:
    """StopIteration raised inside `map` would end `all(...)` early, with True."""
    tests = "def check(candidate):\n    assert all(map(lambda n: candidate(n) == n, range(5)))\n"
    (answer,) = graded(by_tests(tests), "def f(x):\n    raise StopIteration\n")
    assert answer.verdict == "wrong"
    assert "StopIteration" in answer.why


def test_state_of_the_candidate_lasts_over_the_calls_of_one_sample_only() -> None:
    tests = "def check(candidate):\n    assert [candidate(), candidate()] == [1, 2]\n"
    counting = "calls = []\ndef f():\n    calls.append(1)\n    return len(calls)\n"
    assert [g.verdict for g in graded(by_tests(tests), counting, counting)] == ["correct", "correct"]


def test_random_inputs_are_the_tests_own() -> None:
    tests = """
import random
def check(candidate):
    for _ in range(20):
        n = random.random()
        assert candidate(n) == n * 2
"""
    right, seeded = graded(
        by_tests(tests),
        "def f(x):\n    return x * 2\n",
        "import random\nrandom.random = lambda: 0\ndef f(x):\n    return 0\n",
    )
    assert (right.verdict, seeded.verdict) == ("correct", "wrong")


SLEEPY = function("import time; time.sleep(60)")


def test_a_time_out_is_apart_from_failure_and_tried_once_more_alone() -> None:
    began = time.monotonic()
    slow, right = graded(BY_INPUTS, SLEEPY, RIGHT, seconds=0.5)
    assert (slow.verdict, right.verdict) == ("timeout", "correct")
    assert slow.why.endswith("no answer within the time limit of 1.5 s (again, alone)")
    assert "shifted([1, 2], 3) (input 1 of 4, base)" in slow.why
    assert time.monotonic() - began < 20


def test_the_second_try_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is slow once: the first attempt starves, the second has it for itself."""
    from ranktuner.evals.graders import python_code

    attempts = []
    real = python_code.Bench.attempt

    def attempt(self: Any, *args: Any) -> Any:
        attempts.append(args)
        if len(attempts) == 1:
            return python_code.Attempt(Grade("timeout", None, "slow"), starved=True)
        return real(self, *args)

    monkeypatch.setattr(python_code.Bench, "attempt", attempt)
    (answer,) = graded(BY_INPUTS, RIGHT)
    assert answer.verdict == "correct"
    assert answer.why == "4 of 4 inputs (at the second try, alone)"
    assert len(attempts) == 2


def test_limits_follow_the_reference() -> None:
    assert Time.of(4.0) == Time(4.0, 60.0)
    assert Time.of(4.0, 0.5, 2.0) == Time(4.0, 60.0)
    assert Time.of(4.0, 2.0, 30.0) == Time(8.0, 120.0)
    slow = "    import time; time.sleep(0.4)\n    return numbers[0] + by\n"
    for gold in ({"inputs": [[[1], 1]]}, {"tests": "def check(candidate):\n    assert candidate([1], 1) == 2\n"}):
        problem = Problem("own/slow", PROMPT, gold, {**META, "reference": slow})
        (answer,) = graded(problem, slow.replace("0.4", "0.6"), seconds=0.3)  # more than 0.3 s, less than 4 x 0.4 s
        assert answer.verdict == "correct", answer.why


def test_a_sample_has_a_limit_besides_that_of_its_calls() -> None:
    many = Problem("own/many", PROMPT, {"inputs": [[[i], 1] for i in range(100)]}, META)
    (answer,) = graded(many, "    import time; time.sleep(0.08)\n" + RIGHT, seconds=0.1)  # 8 s, of 15 x 0.1 s
    assert answer.verdict == "timeout"


def test_grades_come_in_order_and_one_at_a_time() -> None:
    texts = [RIGHT if i % 3 else RIGHT.replace("+", "-") for i in range(12)]
    verdicts = [g.verdict for g in graded(BY_INPUTS, *texts)]
    assert verdicts == ["correct" if i % 3 else "wrong" for i in range(12)]
    taken = []

    def endless() -> Iterator[Any]:
        for i in itertools.count():
            taken.append(i)
            yield BY_INPUTS, sample(BY_INPUTS, RIGHT, index=i)

    grades = grade(endless())
    assert next(grades).verdict == "correct"
    assert len(taken) <= 9  # reads ahead for its workers, no further
    grades.close()  # type: ignore[attr-defined]


def test_stopping_early_leaves_no_sandbox_running() -> None:
    grades = grade([(BY_INPUTS, sample(BY_INPUTS, RIGHT))] + [(BY_INPUTS, sample(BY_INPUTS, SLEEPY))] * 8, seconds=30.0)
    assert next(grades).verdict == "correct"
    began = time.monotonic()
    grades.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 5


def test_a_reference_that_fails_or_tests_that_do_not_load_are_errors_not_verdicts_on_the_answer() -> None:
    failing = replace(BY_INPUTS, meta={**META, "reference": "    return numbers[9]\n"})
    (answer,) = graded(failing, RIGHT)
    assert answer.verdict == "error"
    assert answer.why.startswith(
        "the reference of problem own/inputs fails its own inputs: shifted([1, 2], 3) raised IndexError"
    )
    for value in ("float('nan')", "iter([1])"):
        (answer,) = graded(replace(BY_INPUTS, meta={**META, "reference": f"    return {value}\n"}), RIGHT)
        assert answer.verdict == "error"
        assert "not accepted against itself" in answer.why
    for tests, part in (("def chek(candidate): pass", "KeyError: 'check'"), ("1 +", "SyntaxError")):
        (answer,) = graded(replace(BY_TESTS, gold={"tests": tests}), RIGHT)
        assert answer.verdict == "error"
        assert answer.why.startswith("the tests of problem own/tests do not load: ")
        assert part in answer.why


def test_limits_that_cannot_be_are_refused() -> None:
    for limits in ({"workers": 0}, {"seconds": 0.0}):
        with pytest.raises(InputError, match="expected at least one worker and a time above 0"):
            grade([], **limits)  # type: ignore[arg-type]


BAD = [
    ({"tests": "x", "inputs": []}, {}, r"the gold has \['inputs', 'tests'\]; expected either 'tests' or 'inputs'"),
    ({}, {}, r"the gold has \[\]; expected either"),
    ("42", {}, "the gold has str; expected either"),
    ({"inputs": [[1]]}, {"entry_point": ""}, "entry_point is ''; expected the name of the function"),
    ({"inputs": [1]}, {}, "'inputs' must be a list of lists of arguments"),
    ({"inputs": []}, {}, "no inputs; a problem without a test would accept every answer"),
    ({"inputs": [[1], [2]], "outputs": [1]}, {}, "2 inputs but 1 outputs; expected one for each"),
    ({"inputs": [[1]]}, {"reference": None}, "inputs without outputs need the field 'reference'"),
    ({"inputs": [[1]]}, {"oracle": "root"}, "no oracle 'root'; known: root_of_polynomial"),
]


@pytest.mark.parametrize(("gold", "meta", "message"), BAD)
def test_a_problem_that_cannot_be_graded_is_refused(gold: Any, meta: dict[str, Any], message: str) -> None:
    problem = Problem("own/bad", PROMPT, gold, {**META, **meta})
    with pytest.raises(DataError, match=rf"problem own/bad: .*{message}"):
        graded(problem, RIGHT)


def test_a_users_own_row() -> None:
    row = {
        "question": "Double it.",
        "entry_point": "double",
        "inputs": [[2], ["a"]],
        "outputs": [4, "aa"],
        "prompt": "",
    }
    problem = user_problem(row, "mine/1")
    assert [g.verdict for g in graded(problem, "```\ndef double(x): return x * 2\n```")] == ["correct"]
    with pytest.raises(DataError, match="mine/1 has no field 'reference'"):
        answer_of_reference(problem)
    with pytest.raises(DataError, match="no field 'question'; the row has 'entry_point'"):
        problem_of_row({"entry_point": "f"}, "mine/2")
    tupled = Problem("own/pair", "", {"inputs": [[1, 2]], "outputs": [[2, [1]]]}, {"entry_point": "f", "prompt": ""})
    assert graded(tupled, "def f(a, b): return (b, (a,))")[0].verdict == "correct"  # JSON has no tuples


@pytest.mark.parametrize(
    ("found", "expected", "atol", "right"),
    [
        (1, True, 0, True),
        (1.0, 1, 0, True),
        ([1], (1,), 0, False),
        ("1", 1, 0, False),
        (None, 0, 0, False),
        (0.1 + 0.2, 0.3, 0, True),
        (0.300002, 0.3, 0, False),
        (0.300002, 0.3, 1e-4, True),
        ([0.1 + 0.2], [0.3], 0, True),
        ((0.1 + 0.2,), [0.3], 0, False),
        ([0.3, 0.3], [0.3], 0, False),
        ([[0.1 + 0.2]], [[0.3]], 0, False),  # evalplus: only flat lists of floats have a tolerance of their own
        ([[0.1 + 0.2]], [[0.3]], 1e-6, True),
        (3, 3.0000001, 0, False),  # a tolerance asks for the same type
        (float("nan"), float("nan"), 0, False),
        (float("inf"), float("inf"), 0, True),
        (10**400, 1.0, 1e-6, False),
        ("a", 0.5, 1e-6, False),
        ({"a": 0.3}, {"a": 0.1 + 0.2}, 0, False),
    ],
)
def test_equality(found: Any, expected: Any, atol: float, right: bool) -> None:
    assert same(found, expected, atol) is right


def test_an_answer_that_is_not_unique_is_judged_by_its_rule() -> None:
    meta = {
        "entry_point": "root",
        "prompt": "",
        "oracle": "root_of_polynomial",
        "reference": "def root(xs): return 1.0",
    }
    problem = Problem("own/root", "", {"inputs": [[[-1.0, 0.0, 1.0]]], "atol": 1e-4}, meta)
    answers = graded(
        problem, *(f"def root(xs): return {x}" for x in ("-1.0", "1", "1.1", "'x'", "float('nan')", "1e300"))
    )
    assert [g.verdict for g in answers] == ["correct", "correct", "wrong", "wrong", "wrong", "wrong"]


def test_outputs_given_are_used_without_a_reference() -> None:
    assert "reference" not in BY_OUTPUTS.meta
    assert graded(BY_OUTPUTS, RIGHT)[0].verdict == "correct"
