"""The mathematics grader against the list of answers, and its own rules one by one."""

from __future__ import annotations

import pytest
from answers import ANSWERS, TOWERS
from items import item

from ranktuner.evals.graders import grader
from ranktuner.evals.graders.compare import same
from ranktuner.evals.graders.math_answer import grade_one
from ranktuner.evals.records import Grade


@pytest.fixture(scope="module")
def grades() -> list[Grade]:
    """All answers, graded once, in the order of the list."""
    items = [item(pair[0], pair[1], **(pair[3] if len(pair) > 3 else {})) for pair in ANSWERS]
    return list(grader("math")(items, workers=2, seconds=20))


def name(index: int) -> str:
    gold, text, verdict, *_ = ANSWERS[index]
    shown = text if len(text) < 60 else "..." + text[-57:]
    return f"{index}-{gold[:30]}-{verdict}-{shown}".encode("ascii", "replace").decode()


def test_the_list_is_long_enough_and_has_all_verdicts() -> None:
    assert len(ANSWERS) >= 150
    assert {pair[2] for pair in ANSWERS} == {"correct", "wrong", "unparsed", "truncated"}


@pytest.mark.parametrize("index", range(len(ANSWERS)), ids=name)
def test_verdict_is_as_expected(grades: list[Grade], index: int) -> None:
    assert grades[index].verdict == ANSWERS[index][2], grades[index]


def test_towers_of_powers_hold_the_grader_no_longer_than_the_limit() -> None:
    import time

    items = [item("42", text) for text in TOWERS] + [item("42", r"\boxed{42}")]
    start = time.monotonic()
    verdicts = [grade.verdict for grade in grader("math")(items, workers=2, seconds=2)]
    taken = time.monotonic() - start
    assert verdicts[-1] == "correct"
    assert set(verdicts[:-1]) <= {"timeout", "wrong", "error", "unparsed"}, verdicts
    assert "timeout" in verdicts
    assert taken < 2 * len(TOWERS) + 30, (
        f"{taken:.0f} s: limits add up to {2 * len(TOWERS)} s, the rest is starting workers"
    )


def test_a_timeout_says_after_how_long() -> None:
    (grade,) = grader("math")([item("42", TOWERS[0])], workers=1, seconds=1)
    assert grade == Grade("timeout", None, "the grader was stopped after 1 s")


def test_why_names_the_rule_that_found_and_the_rule_that_decided() -> None:
    problem, sample = item("(3,4]", r"\boxed{[3,4]}")
    assert grade_one(problem, sample) == Grade("wrong", "[3,4]", "box: brackets [] where the gold has (]")
    problem, sample = item("42", "The answer is 42 or 43.")
    assert grade_one(problem, sample).why == "phrase: 2 values where the gold has 1"


@pytest.mark.parametrize("gold", ["3, 5, 7", r"\{1, 2\}", r"(1,1), (3,2)", r"1 \pm \sqrt{2}"])
def test_adding_a_value_to_a_right_list_makes_it_wrong(gold: str) -> None:
    assert same(gold, gold, literal=False).right
    assert not same(gold, f"{gold}, 99").right


def test_a_gold_is_not_accepted_only_for_being_written_alike_when_golds_are_checked() -> None:
    from ranktuner.evals.graders.math_answer import check_gold

    broken = r"\frac{1}{2}{{ \unknown \otimes \undef"
    problem, sample = item(broken, "")
    assert check_gold(problem, sample).verdict == "unparsed"
    problem, sample = item(r"a \otimes\bowtie b", "")
    assert check_gold(problem, sample).verdict == "unparsed"
    assert grade_one(*item(r"a \otimes\bowtie b", r"\boxed{a \otimes\bowtie b}")).verdict == "correct"
