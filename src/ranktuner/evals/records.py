"""The records that pass between loading, generating, grading and reporting. Plain data: no torch, no model.

Problem -> (generator) -> Sample -> (grader) -> Grade -> (results) -> Finding
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Verdict = Literal["correct", "wrong", "unparsed", "truncated", "timeout", "error"]
"""`unparsed`: no answer could be read; `truncated`: no answer and the token limit was hit; `timeout`: the grader or the
code ran out of its limit; `error`: the grader itself failed. Only `correct` counts; each is counted by name."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Problem:
    """One problem of a task."""

    id: str
    """Stable within the task: the set's own id where it has one, else the row number."""
    question: str
    """The text that goes into the task's prompt."""
    gold: Any
    """What the grader compares with; JSON values. For code: the tests."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What a grader or a reader may need beside it: choices, unit, tolerance, level, entry point."""


@dataclass(frozen=True)
class Sample:
    """One finished answer of a model; a line of the sample store."""

    task: str
    problem: str
    index: int
    """0 .. n-1 within the problem."""
    seed: int
    """Derived from (task, problem, index); see `samples.seed_of`."""
    text: str
    finish: Literal["stop", "length", "error"]
    """`length`: the limit of new tokens was hit."""
    tokens: int
    """How many were generated."""
    prompt_hash: str
    decoding: Mapping[str, Any]
    """temperature, top_p, max_new_tokens, ..."""
    model: str
    """Fingerprint of the model that wrote it."""
    note: str = ""
    """Why `finish` is `error`, for the reader; such a sample is counted with the verdict `error`, never dropped."""


@dataclass(frozen=True)
class Grade:
    """What a grader says of one sample."""

    verdict: Verdict
    answer: str | None
    """The answer as it was read, for people to see."""
    why: str
    """One line: the rule that decided."""
