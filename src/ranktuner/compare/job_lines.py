"""`--print-jobs`: one shell line for each model that is trained, with everything that is measured of it. No torch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ranktuner.compare.cells import Cells, Entry
from ranktuner.compare.scale import FULL


def job_lines(cells: Cells, recipe: str, options: Sequence[str]) -> Iterator[str]:
    """Yield the lines that are still to run, in an order in which each finds what it needs or waits for it.

    First each candidate of a grid by itself, then each trained model with its evaluations and diagnostics. A line does
    what it needs and nobody else does yet, so lines may run at once, in any order, and more than once.

    Args:
        cells: of the recipe.
        recipe: as it was named on the command line.
        options: those that must be the same for every line.
    """
    begin = shlex.join([*program(), "compare", recipe, *options])
    seen: set[str] = set()
    candidates: list[str] = []
    subjects: dict[tuple[str, str, int | None], list[Entry]] = {}
    for entry in cells.entries():
        if entry.cell and cells.store.done(entry.cell) is not None:
            continue
        if entry.stage == "grid" and entry.cell:
            candidates += [entry.cell.key] if entry.cell.key not in candidates else []
        elif entry.stage != "prepare":
            subjects.setdefault((entry.model, entry.label, entry.seed), []).append(entry)
    for key in candidates:
        seen.add(key)
        yield f"{begin} --cell {key}"
    after: dict[str, None] = {}
    for (_, label, _), entries in subjects.items():
        if any(entry.cell is None for entry in entries):
            after[label] = None
            continue
        keys = list(dict.fromkeys(entry.cell.key for entry in entries if entry.cell and entry.cell.key not in seen))
        seen.update(keys)
        if keys:
            yield begin + "".join(f" --cell {key}" for key in keys)
    for label in after:
        # Its cells are not known before the grid has chosen: the line waits for its candidates, then goes on.
        yield f"{begin} --only {shlex.quote(label)} --no-report"


def program() -> list[str]:
    """Return how this very program is started again."""
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else ""
    return ["ranktuner"] if name == "ranktuner" else [sys.executable, "-m", "ranktuner"]


def options_of(cells: Cells, scale: str, sets: Sequence[str], cells_at: str | None) -> list[str]:
    """Return the options that every job of a comparison must have."""
    made = [] if scale == FULL else ["--scale", scale]
    for text in sets:
        made += ["--set", text]
    return made + (["--cells", cells_at] if cells_at else [])
