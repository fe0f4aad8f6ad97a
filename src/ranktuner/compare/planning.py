"""`ranktuner compare --plan`: what would run, what is there already, tokens and rough times. No model is loaded.

Speeds are those of finished cells of the same model, whatever the recipe; where there are none, a guess from the
number of parameters, and marked as one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranktuner.compare.cells import Cells, Entry
from ranktuner.compare.jobs import EvalJob, TrainJob
from ranktuner.compare.places import Cell, Place
from ranktuner.compare.store import DONE, Store
from ranktuner.data.encode import MATH_SUFFIX
from ranktuner.data.presets import PRESETS, split_source
from ranktuner.evals.tasks import task

if TYPE_CHECKING:
    from rich.console import Console

BYTES_PER_TOKEN = 4.0
"""Of a file of rows, keys and quotes included."""
ROW_TOKENS = 500
"""Of a row on a hub that nobody has counted."""
CPU_FLOPS_PER_CORE, GPU_FLOPS = 4e10, 1e14
"""Guesses of what is reached, not of what is printed on the box."""
GENERATING_SHARE = {"cpu": 1.0, "gpu": 0.03}
"""Of that speed, while tokens are drawn one by one."""


@dataclass
class Line:
    """One line of the plan: the cells of one stage of one row."""

    stage: str
    model: str
    label: str
    seed: int | None
    names: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    tokens: float = 0.0
    """Of what is still to do."""
    seconds: float = 0.0
    guessed: bool = False
    upper: bool = False
    """Tokens are an upper bound: every answer at its limit."""


def plan(cells: Cells) -> list[Line]:
    """Return the plan, a line for each stage of each row."""
    speeds = _Speeds(cells.store)
    lines: dict[Any, Line] = {}
    seen: set[str] = set()
    for entry in cells.entries():
        key = (entry.stage, entry.model, entry.label, entry.seed)
        line = lines.setdefault(key, Line(*key))
        line.names.append(entry.name)
        line.states.append(cells.store.state(entry.cell) if entry.cell else "after the grid")
        if entry.cell and entry.cell.key not in seen and line.states[-1] != "done":
            _add(line, entry.cell, speeds)
        if entry.cell:
            seen.add(entry.cell.key)
    return list(lines.values())


def totals(cells: Cells) -> dict[str, int]:
    """Return state -> how many different cells."""
    entries: Iterable[Entry] = cells.entries()
    states = {entry.cell.key: cells.store.state(entry.cell) for entry in entries if entry.cell}
    names = list(states.values())
    return {name: names.count(name) for name in dict.fromkeys(names)}


def print_plan(cells: Cells, console: Console) -> None:
    """Print the plan as a table, then its sum."""
    from rich import box
    from rich.table import Table

    lines = plan(cells)
    for model in dict.fromkeys(line.model for line in lines):
        made = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
        for name in ("row", "seed", "stage", "cells", "state", "tokens", "time"):
            right = name in ("seed", "cells", "tokens", "time")
            made.add_column(name, justify="right" if right else "left", no_wrap=name != "row", overflow="fold")
        before = None
        for line in (line for line in lines if line.model == model):
            place = (line.label, line.seed)
            made.add_row(
                line.label if place != before else "",
                str(line.seed) if line.seed is not None and place != before else "",
                line.stage, str(len(line.names)), _states(line.states),
                f"{'≤ ' if line.upper else ''}{_short(line.tokens)}" if line.tokens else "",
                _time(line.seconds) + (" ?" if line.guessed else "") if line.seconds else "",
            )  # fmt: skip
            before = place
        console.print(f"\n{model or 'for all models'}", markup=False, highlight=False)
        console.print(made)
    for what, names in _named(cells):
        console.print(f"{what:<9}{', '.join(names)}", markup=False, highlight=False, soft_wrap=True)
    if said := asked_otherwise(cells):
        console.print(f"note     {said}", markup=False, highlight=False, soft_wrap=True)
    seconds = sum(line.seconds for line in lines)
    said = ", ".join(f"{count} {state}" for state, count in totals(cells).items())
    console.print(f"cells    {said}; in {cells.store.path}", markup=False, highlight=False, soft_wrap=True)
    if seconds:
        console.print(f"time     about {_time(seconds)} on this machine, one cell after another", soft_wrap=True)
    if any(line.guessed for line in lines):
        console.print(
            "         times marked ? are guesses from the number of parameters: no cell of that model is finished yet",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    if any(line.upper for line in lines):
        console.print("         ≤: an upper bound, every answer at its limit", soft_wrap=True)


def base_of(place: Place | None) -> Place | None:
    """Return the model that a trained one began as."""
    while place is not None and place.cell is not None and isinstance(place.cell.job, TrainJob):
        place = place.cell.job.model
    return place


class _Speeds:
    """Tokens a second by kind of work and model, from every finished cell."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sums: dict[tuple[str, str], list[float]] = {}
        for path in store.path.glob(f"*/{DONE}"):
            record = json.loads(path.read_text(encoding="utf-8"))
            if record.get("tokens") and record.get("seconds"):
                found = self.sums.setdefault((path.parent.name.partition("-")[0], record.get("base", "")), [0.0, 0.0])
                found[0] += record["tokens"]
                found[1] += record["seconds"]

    def seconds(self, cell: Cell, tokens: float) -> tuple[float, bool]:
        """Return the seconds for so many tokens, and whether they are a guess."""
        base = base_of(cell.job.model)
        measured = self.sums.get((cell.kind, base.facts if base else ""))
        if measured:
            return tokens * measured[1] / measured[0], False
        gpu = Path("/dev/nvidia0").exists()
        flops = GPU_FLOPS if gpu else CPU_FLOPS_PER_CORE * (os.cpu_count() or 1)
        if cell.kind == "eval":
            flops *= GENERATING_SHARE["gpu" if gpu else "cpu"]
        return tokens * (6 if cell.kind == "train" else 2) * parameters(base) / flops, True


def parameters(place: Place | None) -> float:
    """Return about how many parameters a model has: from its files, or from its name."""
    if place is None:
        return 0.0
    if place.cell is not None:
        return {"smollm2": 134.5e6, "tiny": 1e5}[place.cell.job.name]
    weights = sum(file.stat().st_size for file in Path(place.path).glob("*.safetensors"))
    if weights:
        try:
            config = json.loads((Path(place.path) / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            config = {}
        return weights / (2 if "16" in str(config.get("dtype") or config.get("torch_dtype")) else 4)
    size = re.search(r"(\d+(?:\.\d+)?)([BM])\b", Path(place.path).name, re.IGNORECASE)
    return float(size[1]) * (1e9 if size[2].upper() == "B" else 1e6) if size else 1e9


def _add(line: Line, cell: Cell, speeds: _Speeds) -> None:
    """Add what a cell that is still to do will take."""
    if isinstance(cell.job, TrainJob):
        tokens = training_tokens(cell.job, speeds.store.path)
    elif isinstance(cell.job, EvalJob):
        tokens = answer_tokens(cell.job, cell.inputs, speeds.store.path)
        line.upper = True
    else:
        return  # diagnostics and preparations are short beside these
    seconds, guessed = speeds.seconds(cell, tokens)
    line.tokens += tokens
    line.seconds += seconds
    line.guessed |= guessed


def training_tokens(job: TrainJob, cells: Path) -> float:
    """Return about how many tokens a training sees."""
    o, b, data = job.config.optimizer, job.config.batch, job.config.data
    rows, tokens = 0.0, 0.0
    for place in job.source:
        found = _rows_and_bytes(place, cells)
        rows += found[0]
        tokens += found[1] / BYTES_PER_TOKEN
    if data.limit and rows > data.limit:
        rows, tokens = data.limit, tokens * data.limit / rows
    mean = min(tokens / max(rows, 1), data.max_length)
    seen = o.max_steps * min(b.size, max(rows, 1)) if o.max_steps else math.ceil(rows * o.epochs)
    return mean * seen


def _rows_and_bytes(place: Place, cells: Path) -> tuple[float, float]:
    if place.cell is not None:
        count = place.cell.job.config.train if place.cell.kind == "problems" else 0
        return count, count * 160 * BYTES_PER_TOKEN
    preset, path = split_source(place.path)
    here = Path(path).expanduser()
    files = [here] if here.is_file() else [p for p in here.rglob("*") if p.is_file()] if path and here.is_dir() else []
    if files:
        size = float(sum(file.stat().st_size for file in files))
        lines = sum(file.read_bytes().count(b"\n") for file in files if file.suffix in (".jsonl", ".ndjson", ".csv"))
        limit = PRESETS[preset].limit if preset else None
        share = min(1.0, limit / lines) if limit and lines else 1.0
        return (lines or size / (ROW_TOKENS * BYTES_PER_TOKEN)) * share, size * share
    count = (PRESETS[preset].limit if preset else None) or 10_000
    return count, count * ROW_TOKENS * BYTES_PER_TOKEN


def answer_tokens(job: EvalJob, inputs: Any, cells: Path) -> float:
    """Return how many tokens the answers of an evaluation may have at most."""
    if job.task.cell is not None:
        made = job.task.cell.job
        count = made.count if job.task.cell.kind == "task" else made.config.test
    else:
        found = task(job.task.path)
        files = [found.folder / name for name in found.source.files] if found.folder else []
        lines = next((file.read_bytes().count(b"\n") for file in files if file.is_file()), None)
        count = found.expected or lines or 100
    if job.config.limit:
        count = min(count, job.config.limit)
    return float(count * job.n * inputs["max_new_tokens"])


def asked_otherwise(cells: Cells) -> str:
    """Return what to say where tasks ask in words that the rows are trained without, or nothing."""
    config = cells.recipe.train_config
    untold = [row.label for row in cells.rows if not config("MODEL", row).data.prompt_suffix]
    tasks = [cells.task(name) for one in cells.recipe.eval for name in one.tasks]
    # A generated task has the words of the mathematics protocol.
    asking = [title for _, public, title in tasks if not public or MATH_SUFFIX in public.prompt.chat]
    if cells.scale or not untold or not asking:
        return ""
    rows = "the rows" if len(untold) == len(cells.rows) else ", ".join(untold)
    return (
        f'{", ".join(dict.fromkeys(asking))}: asked with "{MATH_SUFFIX}", while {rows} learn without these words; '
        "what a method makes of words it has not seen can decide the order. "
        'train.data.prompt_suffix = "math" trains with them (docs/compare.md)'
    )


def _named(cells: Cells) -> list[tuple[str, list[str]]]:
    """What the cells of a stage are, once: tasks, diagnostics, learning rates."""
    recipe = cells.recipe
    parts: dict[str, list[str]] = {
        "eval": [cells.task(name)[2] for one in recipe.eval for name in one.tasks],
        "entropy": [cells.task(name)[2] for one in recipe.diagnose for name in one.tasks],
        "diagnose": [one.kind for one in recipe.diagnose],
        "grid": [f"{rate:g}" for rate in recipe.grid.learning_rates] if recipe.grid else [],
    }
    return [(name, list(dict.fromkeys(found))) for name, found in parts.items() if found]


def _states(states: list[str]) -> str:
    if len(set(states)) == 1:
        return states[0]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _short(number: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.0f}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"
