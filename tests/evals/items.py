"""Problems and samples for tests of graders."""

from __future__ import annotations

from typing import Any

from ranktuner.evals.records import Problem, Sample


def item(gold: Any, text: str, finish: Any = "stop", question: str = "", **meta: Any) -> tuple[Problem, Sample]:
    """Return a problem with this gold, and a sample with this text."""
    sample = Sample("task", "p", 0, 0, text, finish, len(text) // 4, "hash", {}, "model")
    return Problem("p", question, gold, meta), sample
