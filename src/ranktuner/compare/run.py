"""One comparison from recipe to report: `ranktuner.compare(recipe)`.

    OUTPUT/compare.json     the recipe, and where each of its cells is and how it stands
    OUTPUT/findings/        the Finding `comparison`, and those of the diagnostics
    OUTPUT/report.html      the report, its numbers beside it

Everything that takes time is in the cells (see `store`): any later call, also of another recipe, goes on from them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ranktuner.compare.cells import Cells, Entry
from ranktuner.compare.collect import collect, failures
from ranktuner.compare.folder import claim, write_manifest
from ranktuner.compare.places import Cell
from ranktuner.compare.planning import asked_otherwise, print_plan
from ranktuner.compare.ready import ready
from ranktuner.compare.recipe import Recipe, make_recipe, read_recipe
from ranktuner.compare.scale import FULL, scaled
from ranktuner.compare.store import Store
from ranktuner.compare.work import Worker
from ranktuner.errors import InputError, RankTunerError, UnsupportedError, nearest
from ranktuner.evals.graders.pool import keep_workers
from ranktuner.findings import Finding
from ranktuner.lock import HeldError

CELLS = "runs/compare/cells"
WAIT_SECONDS = 1.0
"""Between two looks at a cell that another process does."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to."""

    output: Path
    finding: Finding | None
    """The Finding `comparison`; None where nothing is evaluated, or only single cells or a plan were asked for."""
    report: Path | None = None
    failed: Sequence[Mapping[str, Any]] = ()
    """What did not finish: model, label, seed, stage, error, folder."""


def compare(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    only: Sequence[str] = (),
    scale: str = FULL,
    sets: Sequence[str] = (),
    output: str | Path | None = None,
    cells: str | Path | None = None,
    plan: bool = False,
    cell: Sequence[str] = (),
    report: bool = True,
    quiet: bool = False,
) -> Comparison:
    """Train, evaluate and diagnose every method of a recipe, and report on them side by side.

    Args:
        recipe: a recipe, a nested mapping of its fields, the path of a TOML file, or the name of a shipped one.
        only: labels of the rows to run; the original is always there.
        scale: full, small or tiny; see `scale`.
        sets: settings as `section.key=value` that win over the recipe's.
        output: folder of the result; default the recipe's, or runs/compare/NAME.
        cells: folder of all cells; default $RANKTUNER_CELLS, or runs/compare/cells.
        plan: print what would run, and stop.
        cell: keys of single cells to do, with what they need; no report is made.
        report: make the table and the report; False: do the cells only, for jobs that run beside each other.
        quiet: print nothing.

    Returns:
        The result; what failed is in it and is no exception.

    Raises:
        KeyboardInterrupt: it was stopped; the same call goes on.
    """
    from rich.console import Console

    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UnsupportedError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}: a comparison runs in one process and trains on one device; "
            "start it without torchrun, and use --print-jobs for several processes"
        )
    made = scaled(read(recipe, sets), scale)
    store = Store(cells_folder(cells))
    todo = Cells(made, store, tuple(only))
    console = Console(file=sys.stderr, quiet=quiet)
    todo.check()
    folder = output_folder(made, output)
    if plan:
        print_plan(todo, Console(quiet=quiet))
        return Comparison(folder, None)
    ready(todo, report and not cell)
    runner = Runner(todo, console, quiet)
    if cell:
        runner.run_keys(cell)
        return Comparison(folder, None, None, failures(todo, runner.errors, cell))
    if not report:
        runner.run_all()
        return Comparison(folder, None, None, failures(todo, runner.errors))
    claim(folder, made, console)
    if said := asked_otherwise(todo):
        runner.say(f"note     {said}")
    with _writing(folder):
        write_manifest(folder, todo, runner.errors)
    try:
        runner.run_all()
    finally:
        with _writing(folder):
            write_manifest(folder, todo, runner.errors)
    with _writing(folder):
        finding, page = collect(folder, todo, runner.errors, runner.worker, runner.say)
        write_manifest(folder, todo, runner.errors)
    return Comparison(folder, finding, page, failures(todo, runner.errors))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say what is kept where the result cannot be written: a full disk, a folder of somebody else's."""
    try:
        yield
    except OSError as error:
        raise RankTunerError(
            f"{folder}: the result could not be written ({error.strerror or error}); every finished cell is kept: "
            "make room, or choose another --output, and run the same command again"
        ) from error


def read(recipe: Recipe | Mapping[str, Any] | str | Path, sets: Sequence[str] = ()) -> Recipe:
    """Return the recipe of whatever form it was given in."""
    if isinstance(recipe, str | Path):
        return read_recipe(recipe, sets)
    if sets:
        raise InputError("settings are for recipes in files; put them into the mapping")
    return recipe if isinstance(recipe, Recipe) else make_recipe(recipe)


def cells_folder(given: str | Path | None = None) -> Path:
    """Return the folder of all cells: the one given, $RANKTUNER_CELLS, or runs/compare/cells."""
    return Path(given or os.environ.get("RANKTUNER_CELLS") or CELLS).expanduser()


def output_folder(recipe: Recipe, given: str | Path | None = None) -> Path:
    """Return the folder of the result: the one given, the recipe's, or runs/compare/NAME; a scale is part of NAME."""
    suffix = "" if recipe.scale == FULL else f"-{recipe.scale}"
    chosen = given or (f"{recipe.output}{suffix}" if recipe.output else f"runs/compare/{recipe.name}{suffix}")
    return Path(chosen).expanduser()


@dataclass
class Runner:
    """Does cells in order; what fails is noted and the rest goes on."""

    cells: Cells
    console: Any
    quiet: bool = False
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Key -> what went wrong in this call: error, and `needs` where it was only waiting for another cell."""

    def __post_init__(self) -> None:
        self.store: Store = self.cells.store
        self.worker = Worker(self.store.path, self.say, self.quiet)
        self.began = time.time()
        self._waiting = ""

    def say(self, text: str) -> None:
        """Print a line for people."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def run_all(self) -> None:
        """Do every cell of the recipe."""
        self._until_settled(None)

    def run_keys(self, keys: Sequence[str]) -> None:
        """Do the cells of these keys."""
        known = {e.cell.key for e in self.cells.entries() if e.cell}
        for key in keys:
            if key not in known:
                raise InputError(
                    f"--cell {key}: the recipe {self.cells.recipe.name} has no such cell ({nearest(key, known)}); "
                    "it or its data have changed since --print-jobs: print the jobs again"
                )
        self._until_settled(set(keys))

    def _until_settled(self, keys: set[str] | None) -> None:
        """Go through the cells until each is done or failed; those that others do are waited for last."""
        with keep_workers():
            while self._pass(keys):
                time.sleep(WAIT_SECONDS)

    def _pass(self, keys: set[str] | None) -> bool:
        """Go through the cells once; return whether some must be waited for."""
        busy: list[str] = []
        total = sum(1 for _ in self.cells.entries())
        # Entries are made as they are met: what a grid chooses is known when its candidates are done.
        for number, entry in enumerate(self.cells.entries(), start=1):
            if entry.cell is None or (keys is not None and entry.cell.key not in keys):
                continue
            if entry.stage == "grid" and (self.store.failed(entry.cell) or {}).get("diverged"):
                continue  # it would diverge again
            try:
                self._attempt(entry.cell, f"{number}/{total} {describe(entry)}")
            except HeldError as owner:
                busy.append(f"{describe(entry)} ({owner})")
        if not busy:
            return False
        if self._waiting != busy[0]:
            self._waiting = busy[0]
            self.say(f"waiting  for another process: {busy[0]}" + f" and {len(busy) - 1} more" * (len(busy) > 1))
        return True

    def _attempt(self, cell: Cell, title: str) -> bool:
        """Do a cell, and before it what it needs; return whether it is done. Raises HeldError: ask again later."""
        if self._is_done(cell):
            self.errors.pop(cell.key, None)
            return True
        if cell.key in self.errors:
            return False
        for need in cell.needs:
            if not self._attempt(need, f"{title} <- {need.kind}"):
                cause = self.errors[need.key]
                root = cause.get("needs", need.name)
                self.errors[cell.key] = {"error": cause["error"], "needs": root}
                return False
        try:
            with self.store.hold(cell) as folder:
                return self._do(cell, folder, title)
        except OSError as error:  # the folder itself cannot be made
            self._failed(cell, title, error)
            return False

    def _is_done(self, cell: Cell) -> bool:
        made = self.store.folder(cell) / "model"
        there = cell.kind != "model" or (made / "config.json").exists()  # a fetched model may have gone from its cache
        return self.store.done(cell) is not None and there

    def _do(self, cell: Cell, folder: Path, title: str) -> bool:
        if self._is_done(cell):  # by another process, while this one waited
            return True
        before = self.store.failed(cell)
        if before and before.get("ended", 0) > self.began:
            self.errors[cell.key] = before
            return False
        again = " (goes on)" if self.store.state(cell) == "begun" else " (again)" if before else ""
        self.say(f"\n[{title}]{again} {cell.name}")
        try:
            self.store.begin(cell)
            facts = self.worker.do(cell, folder)
            self.store.finish(cell, facts)
        except Exception as error:  # whatever it is, it is this cell's: the others go on
            self._failed(cell, title, error)
            return False
        self.say(f"done     {title}, {facts['seconds']:.1f} s")
        return True

    def _failed(self, cell: Cell, title: str, error: BaseException) -> None:
        record = self.store.fail(cell, error)
        self.errors[cell.key] = record
        self.worker.release()
        self.say(f"FAILED   {title}: {record['error']}")


def describe(entry: Entry) -> str:
    """Return a cell's place for people."""
    seed = f"seed {entry.seed}" if entry.seed is not None else ""
    return ", ".join(part for part in (f"{entry.stage} {entry.name}", entry.model, entry.label, seed) if part)
