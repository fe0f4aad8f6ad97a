"""Tasks: the paper's nine benchmarks, GSM8K, and a user's own from a TOML file."""

from __future__ import annotations

from pathlib import Path

from ranktuner.errors import InputError, nearest
from ranktuner.evals.tasks.catalog import CATALOG
from ranktuner.evals.tasks.task import Decoding, Loaded, LoadReport, Prompt, Source, Task

__all__ = ["Decoding", "LoadReport", "Loaded", "Prompt", "Source", "Task", "task", "tasks"]


def tasks() -> list[str]:
    """Return the names of the tasks that come with RankTuner, the paper's nine first."""
    return list(CATALOG)


def task(name: str | Path) -> Task:
    """Return a task by its name, or a user's own by the path of its TOML file.

    Args:
        name: one of `tasks()`, or a path that ends in `.toml` (see docs/evaluation.md).

    Returns:
        the task; nothing is read but the TOML.
    """
    if str(name).endswith(".toml"):
        from ranktuner.evals.tasks.own import read_toml

        return read_toml(Path(name))
    if str(name) not in CATALOG:
        raise InputError(
            f"unknown task {str(name)!r}; {nearest(str(name), CATALOG)} "
            "(a task of your own is named by the path of its .toml file)"
        )
    return CATALOG[str(name)]
