"""What `ranktuner eval` shows while it works."""

from __future__ import annotations

import time
from typing import Any

import typer


class Say:
    """Prints lines for people on the error stream, so that the table alone is the output."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __call__(self, line: str) -> None:
        """Print one line."""
        if not self.quiet:
            typer.echo(line, err=True)


class Bar:
    """Progress with time left and running pass@1: a bar in a terminal, a line every half minute elsewhere."""

    LINE_SECONDS = 30.0

    def __init__(self, quiet: bool, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.unit, self.total, self.done, self.graded_n, self.correct = unit, 0, 0, 0, 0
        self.live = console.is_terminal and not quiet
        self.lines = not console.is_terminal and not quiet
        self.next_line = 0.0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[score]}"),
            console=console,
            disable=not self.live,
        )
        self.row: Any = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended()

    def started(self, task: str, total: int, done: int) -> None:
        """Begin a task."""
        self.task, self.total, self.done = task, total, done
        self.next_line = time.monotonic() + self.LINE_SECONDS
        self.began, self.before = time.monotonic(), done
        self.progress.start()
        self.row = self.progress.add_task(task, total=total, completed=done, score="")

    def sampled(self, sample: Any) -> None:
        """Count a stored sample."""
        if self.unit == "sampled":
            self._advance()

    def graded(self, sample: Any, grade: Any) -> None:
        """Count a grade; called from the grading thread."""
        self.graded_n += 1
        self.correct += grade.verdict == "correct"
        if self.unit == "graded":
            self._advance()
        else:
            self._show()

    def ended(self) -> None:
        """Leave the terminal as it was."""
        self.progress.stop()

    def _advance(self) -> None:
        self.done += 1
        self._show()

    def _show(self) -> None:
        if self.live:
            self.progress.update(self.row, completed=self.done, score=self._score())
        elif self.lines and (now := time.monotonic()) >= self.next_line:
            self.next_line = now + self.LINE_SECONDS
            made = self.done - self.before
            left = (self.total - self.done) / made * (now - self.began) / 60 if made else 0
            about = f"about {left:.0f} min left" if made and self.done < self.total else ""
            typer.echo(
                ", ".join(filter(None, [f"{self.task}: {self.done} of {self.total}", about, self._score()])), err=True
            )

    def _score(self) -> str:
        if not self.graded_n:
            return ""
        # When all is sampled only the grader works: its own count shows that it moves.
        grading = f"{self.graded_n} graded, " if self.unit == "sampled" and self.done == self.total else ""
        return f"{grading}pass@1 so far {self.correct / self.graded_n:.1%}"
