"""The multiple-choice grader: the letter, and one letter only."""

from __future__ import annotations

import pytest
from items import item

from ranktuner.evals.graders import grader
from ranktuner.evals.graders.choice import grade_one

CHOICES = {"A": "Planetary density", "B": "Iron", "C": "Ice cream", "D": "$x^2$"}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (r"\boxed{B}", "correct"),
        (r"\boxed{b}", "correct"),
        (r"\boxed{\text{B}}", "correct"),
        (r"\boxed{\textbf{(B)}}", "correct"),
        (r"\boxed{B. Iron}", "correct"),
        (r"\boxed{B \text{ Iron}}", "correct"),
        (r"\boxed{Iron}", "correct"),
        (r"\boxed{iron.}", "correct"),
        (r"\boxed{C}", "wrong"),
        (r"\boxed{Ice cream}", "wrong"),
        (r"\boxed{A} no, \boxed{B}", "correct"),
        (r"\boxed{A} or \boxed{B}", "wrong"),
        (r"\boxed{A, B}", "wrong"),
        (r"\boxed{A \text{ or } B}", "wrong"),
        (r"\boxed{E}", "unparsed"),
        (r"\boxed{42}", "unparsed"),
        ("The answer is B.", "correct"),
        ("The answer is (B) Iron.", "correct"),
        ("The correct answer is option B", "correct"),
        ("**Answer:** B", "correct"),
        ("So the answer is **B. Iron**", "correct"),
        ("The answer is: $B$", "correct"),
        ("The answer is either A or B", "wrong"),
        ("The answer is A balloon.", "unparsed"),
        ("Let me think.\nB", "correct"),
        ("Let me think.\n**B**", "correct"),
        ("B) Iron", "correct"),
        ("A or B", "wrong"),
        ("B or A", "wrong"),  # the right letter first is a hedge too
        (r"\boxed{B} or \boxed{A}", "wrong"),
        (r"\boxed{B. Iron, C. Ice cream}", "wrong"),
        ("The answer is (B) or (C).", "wrong"),
        ("A balloon rises.", "unparsed"),
        ("", "unparsed"),
        ("B" * 1_000_000, "unparsed"),
    ],
)
def test_verdicts(text: str, verdict: str) -> None:
    assert grade_one(*item("B", text, choices=CHOICES)).verdict == verdict


def test_a_cut_text_needs_an_explicit_answer() -> None:
    assert grade_one(*item("B", "Iron, since (B)", "length", choices=CHOICES)).verdict == "truncated"
    assert grade_one(*item("B", r"\boxed{B} and", "length", choices=CHOICES)).verdict == "correct"


def test_five_choices_have_an_e() -> None:
    choices = {**CHOICES, "E": "Salt"}
    assert grade_one(*item("E", r"\boxed{E}", choices=choices)).verdict == "correct"


def test_the_pool_grades_choices_in_order() -> None:
    items = [item("B", rf"\boxed{{{letter}}}", choices=CHOICES) for letter in "ABCDBA"]
    assert [g.verdict for g in grader("choice")(items, workers=2)] == [
        "wrong", "correct", "wrong", "wrong", "correct", "wrong",
    ]  # fmt: skip
