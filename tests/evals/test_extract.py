"""Where the answer is found, and that finding it takes no longer than reading the text."""

from __future__ import annotations

import time

import pytest

from ranktuner.evals.graders.extract import Extracted, boxes, extract


@pytest.mark.parametrize(
    ("text", "answer", "rule"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", "box"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", "box"),
        (r"first \boxed{1}, then \boxed{2}", "2", "box"),
        (r"first \boxed{1}, \boxed{2}", "1, 2", "box"),
        ("The answer is $\\frac{1}{2}$ and so on.", r"\frac{1}{2}", "phrase"),
        ("The answers are $1$ and $2$.", "1, 2", "phrase"),
        ("Answer: 7", "7", "phrase"),
        ("So we have 12 and then 15 apples.", "15", "last"),
        ("Thus $x = 3$ or $x = 4$.", "x = 3, x = 4", "last"),
    ],
)
def test_the_rules(text: str, answer: str, rule: str) -> None:
    found = extract(text, cut=False)
    assert found is not None
    assert (found.text.strip(), found.rule) == (answer, rule)


def test_a_cut_text_has_only_explicit_answers() -> None:
    assert extract("So 6 times 7 is 42", cut=True) is None
    assert extract("So 6 times 7 is 42", cut=False) == Extracted("42", "last")
    assert extract("The answer is 42. Now", cut=True) == Extracted("42", "phrase")
    assert extract("The answer is 42", cut=True) is None


def test_an_unclosed_box_is_no_answer_and_hides_numbers_on_the_way() -> None:
    assert extract(r"from 3 and 4 we get \boxed{1", cut=False) is None
    assert extract(r"\boxed{7} and then \boxed{1", cut=False) == Extracted("7", "box")


def test_boxes_are_found_once_with_their_places() -> None:
    text = r"a \boxed{\boxed{1}} b \boxed{2}"
    assert [text[start:end] for start, end, _ in boxes(text)] == [r"\boxed{\boxed{1}}", r"\boxed{2}"]


@pytest.mark.parametrize(
    "unit",
    ["a", "$", "\\boxed{", "{", "}", "1", "1,", "answer is ", "answer to ", "\\(", "\\[", "$a ", " ", "\\boxed{1},",
     "1 or ", "1 ", "answer: $", "#### ", "\\\\", "**", "-", ".", "1/", "\\boxed{1}\n"],
)  # fmt: skip
def test_a_megabyte_of_anything_is_searched_in_no_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    extract(text, cut=False)
    assert time.process_time() - start < 3.0
