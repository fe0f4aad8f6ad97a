"""What a run tells: one JSON line a step, and a live display."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

SHOWN = (
    "loss",
    "nll",
    "effective_tokens",
    "weight_mean",
    "entropy_bits_mean",
    "top1",
    "grad_norm",
    "learning_rate",
    "eval_nll",
)
"""What the live display shows beside speed."""


class MetricsFile:
    """`metrics.jsonl`: one object a line, each written through at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line."""
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Have the lines on the disk: called before a checkpoint gets its name."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        # Every line was written through: what is left to flush is one that the disk refused, and that was said.
        with suppress(OSError):
            self._file.close()


class Display:
    """Progress on the console: live in a terminal, a line every few seconds elsewhere; silent on other ranks.

    Args:
        steps: of the whole run.
        done: of them before this start.
        console: where to; None is silent.
        interval: seconds between lines where there is no terminal.
    """

    def __init__(self, steps: int, done: int, console: Console | None, interval: float = 10.0) -> None:
        self._console, self._interval, self._last = console, interval, 0.0
        self._live: Live | None = None
        self._steps = steps
        self._shown: dict[str, Any] = {}
        self._progress = Progress(
            TextColumn("step"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
        )
        self._task = self._progress.add_task("train", total=steps, completed=done)

    def __enter__(self) -> Display:
        if self._console is not None and self._console.is_terminal:
            self._live = Live(self._progress, console=self._console, refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, record: Mapping[str, Any]) -> None:
        """Show one step."""
        self._progress.update(self._task, completed=record["step"])
        self._shown |= record
        if self._live is not None:
            self._live.update(self._table(self._shown))
        elif self._console is not None:
            now = time.monotonic()
            if now - self._last >= self._interval or record["step"] in (1, self._steps) or "eval_nll" in record:
                self._last = now
                self._console.print(line_for(record, self._steps), highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line above the display."""
        if self._console is not None:
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def _table(self, record: Mapping[str, Any]) -> Table:
        grid = Table.grid()
        numbers = Table(box=None, pad_edge=False, header_style="dim")
        values = []
        for name in ("tokens_per_s", *SHOWN):
            numbers.add_column(name.replace("_", " "), justify="right")
            values.append(_number(record.get(name)))
        numbers.add_row(*values)
        grid.add_row(self._progress)
        grid.add_row(numbers)
        return grid


def line_for(record: Mapping[str, Any], steps: int) -> str:
    """Return a step, or an evaluation after it, as one line of text."""
    names = [n for n in ("loss", "nll", "effective_tokens", "grad_norm", "tokens_per_s", "eval_nll") if n in record]
    return "  ".join(
        [f"step {record['step']}/{steps}", *(f"{n.replace('_', ' ')} {_number(record[n])}" for n in names)]
    )


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def main_console(rank: int, quiet: bool = False) -> Console | None:
    """Return the console of rank 0, on standard error so that piped output stays clean; None elsewhere."""
    return None if rank or quiet else Console(file=sys.stderr)
