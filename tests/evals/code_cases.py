"""Small code problems of our own making, and how the tests ask for a grade."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ranktuner.evals import sandbox
from ranktuner.evals.graders.python_code import grade
from ranktuner.evals.records import Grade, Problem, Sample

SECRET = 918273
"""A value that stands in the expected outputs and the tests, and nowhere else."""

PROMPT = '''from typing import List


def shifted(numbers: List[int], by: int) -> List[int]:
    """Add `by` to every number.

    >>> shifted([1, 2], 3)
    [4, 5]
    """
'''
RIGHT = "    return [number + by for number in numbers]\n"
INPUTS = [[[1, 2], 3], [[], 5], [[7], -7], [[SECRET - 1], 1]]
TESTS = f"""
def check(candidate):
    assert candidate([1, 2], 3) == [4, 5]
    assert candidate([], 5) == []
    for number in range(3):
        assert candidate([number], -number) == [0], "one each"
    assert candidate([{SECRET} - 1], 1)[0] == {SECRET}
"""

META = {"entry_point": "shifted", "prompt": PROMPT, "reference": RIGHT}
BY_INPUTS = Problem("own/inputs", PROMPT, {"inputs": INPUTS, "base": 2}, META)
BY_OUTPUTS = Problem(
    "own/outputs", PROMPT, {"inputs": INPUTS, "outputs": [[4, 5], [], [0], [SECRET]]}, {"entry_point": "shifted"}
)
BY_TESTS = Problem("own/tests", PROMPT, {"tests": TESTS}, META)
PROBLEMS = {"inputs": BY_INPUTS, "outputs": BY_OUTPUTS, "tests": BY_TESTS}


def function(body: str, before: str = "") -> str:
    """A whole program whose `shifted` has this body."""
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return f"{before}\ndef shifted(numbers, by):\n{lines}\n"


def sample(problem: Problem, text: str, finish: str = "stop", index: int = 0, form: str = "answer") -> Sample:
    return Sample("own", problem.id, index, 0, text, finish, 1, "", {"form": form}, "test")  # type: ignore[arg-type]


def graded(problem: Problem, *texts: str, seconds: float | None = None, form: str = "answer") -> list[Grade]:
    items = [(problem, sample(problem, text, index=i, form=form)) for i, text in enumerate(texts)]
    return list(grade(items, seconds=seconds))


def needs_bubblewrap() -> Iterator[None]:
    """Skip, saying why, where bubblewrap cannot work (in many containers)."""
    found = sandbox.bubblewrap_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    yield
