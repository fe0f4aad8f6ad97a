"""Graders: what says whether an answer is right. Apart from generation, repeatable, and none can be held up.

Each grader is one function `grade(items, *, workers, seconds)` that takes (problem, sample) pairs and yields one
Grade a pair, in order. It is imported when it is asked for: no grader costs anything to those who do not use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Protocol, cast

from ranktuner.errors import InputError, nearest
from ranktuner.evals.records import Grade, Problem, Sample


class Grader(Protocol):
    """Grades many samples, in order, each within `seconds`."""

    def __call__(
        self, items: Iterable[tuple[Problem, Sample]], *, workers: int = ..., seconds: float = ...
    ) -> Iterator[Grade]:
        """Yield one Grade for each (problem, sample), in the order given."""


GRADERS = {
    "math": "ranktuner.evals.graders.math_answer:grade",
    "choice": "ranktuner.evals.graders.choice:grade",
    "code": "ranktuner.evals.graders.python_code:grade",
}
"""Grader name -> module:attribute, a `Grader`."""


def grader(name: str) -> Grader:
    """Return the grader of this name; an unknown name is answered with the nearest ones."""
    if name not in GRADERS:
        raise InputError(f"unknown grader {name!r}; {nearest(name, GRADERS)}")
    module, _, attribute = GRADERS[name].partition(":")
    return cast(Grader, getattr(import_module(module), attribute))
