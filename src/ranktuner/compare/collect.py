"""From finished cells to Findings and the report. What is missing or failed stands in them as such."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranktuner.compare.cells import Cells, Entry
from ranktuner.compare.jobs import EvalJob
from ranktuner.compare.outcome import Evaluated, Failed, comparison
from ranktuner.compare.parts import EvalConfig
from ranktuner.compare.places import Cell
from ranktuner.compare.recipe import ORIGINAL
from ranktuner.compare.work import Worker
from ranktuner.errors import DataError, RankTunerError
from ranktuner.findings import Finding

Errors = Mapping[str, Mapping[str, Any]]
DIVERGED = "every learning rate of the grid diverged; give smaller ones in grid.learning_rates"
FINDINGS, REPORT = "findings", "report.html"


def failures(cells: Cells, errors: Errors, keys: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return every cell of the recipe that failed, once each; what only waited for one that failed is left out.

    Args:
        cells: of the recipe.
        errors: of this call, by key.
        keys: look at these cells only, and at what they need; empty: at all.
    """
    wanted = _with_needs([e.cell for e in cells.entries() if e.cell and e.cell.key in keys]) if keys else None
    found: dict[str, dict[str, Any]] = {}
    for entry in cells.entries():
        if entry.cell is None or (wanted is not None and entry.cell.key not in wanted):
            continue
        error = errors.get(entry.cell.key)
        if error is None or "needs" in error or cells.store.done(entry.cell) is not None or _lost(entry, error):
            continue
        stage = f"{entry.stage} {entry.name}" if entry.stage in ("eval", "entropy", "diagnose", "grid") else entry.stage
        found.setdefault(
            entry.cell.key,
            {
                "model": entry.model,
                "label": entry.label,
                "seed": entry.seed,
                "stage": stage,
                "error": str(error["error"]).splitlines()[0][:300],
                "folder": str(cells.store.folder(entry.cell)),
            },
        )
    rows = [(model, row) for model, row in cells.diverged() if wanted is None]
    seed = cells.recipe.seeds[0]
    return [
        *found.values(),
        *(
            {"model": model, "label": row.label, "seed": seed, "stage": "grid", "error": DIVERGED, "folder": ""}
            for model, row in rows
        ),
    ]


def _lost(entry: Entry, error: Mapping[str, Any]) -> bool:
    """Whether it is a candidate that diverged: that is what a grid is for, and no failure."""
    return entry.stage == "grid" and bool(error.get("diverged"))


def _with_needs(cells: Sequence[Cell]) -> set[str]:
    return {key for cell in cells for key in (cell.key, *_with_needs(cell.needs))}


def collect(folder: Path, cells: Cells, errors: Errors, worker: Worker, say: Any) -> tuple[Finding | None, Path | None]:
    """Write the Findings and the report of what is finished.

    Returns:
        The Finding `comparison` (None where the recipe evaluates nothing), and the report (None: nothing to show).
    """
    part = folder / f".{FINDINGS}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    entries = list(cells.entries())
    finding = None
    if cells.recipe.eval:
        finding = _comparison(cells, entries, errors, worker)
        finding.save(part / "comparison.json")
    for name, found in [*_diagnosed(cells, entries), *_entropies(cells, entries)]:
        found.save(part / f"{name}.json")
    there = any(part.iterdir())
    shutil.rmtree(folder / FINDINGS, ignore_errors=True)
    part.rename(folder / FINDINGS)
    return finding, _report(folder, cells, entries, say) if there else None


def _comparison(cells: Cells, entries: Sequence[Entry], errors: Errors, worker: Worker) -> Finding:
    store, seeds = cells.store, cells.recipe.seeds
    evaluated: list[Evaluated] = []
    failed: list[tuple[Entry, Mapping[str, Any]]] = []
    for entry in entries:
        if entry.stage == "eval" and entry.cell and store.done(entry.cell) is not None:
            try:
                _have_ks(worker, entry.cell, cells.recipe.eval[entry.at], store.folder(entry.cell))
            except (OSError, RankTunerError) as cause:  # the k that are there are better than no table
                worker.say(f"note     {entry.label}: k = {cells.recipe.eval[entry.at].k} could not be added ({cause})")
            evaluated.append(Evaluated(entry.model, entry.label, entry.seed, store.folder(entry.cell)))
        elif entry.cell and entry.model and entry.stage != "entropy" and (error := errors.get(entry.cell.key)):
            failed += [] if _lost(entry, error) else [(entry, error)]
    named = [
        Failed(e.model, e.label, e.seed, _stage(e), str(error["error"]).splitlines()[0][:300])
        for e, error in failed
        if "needs" not in error or _cause_is_elsewhere(error, failed)
    ]
    named += [Failed(model, row.label, seed, "grid", DIVERGED) for model, row in cells.diverged() for seed in seeds]
    made = comparison(cells.recipe, evaluated, list(dict.fromkeys(named)))
    grid = _grid(cells)
    protocol = {**made.protocol, "scale": cells.recipe.scale}
    return replace(made, numbers={**made.numbers, **({"grid": grid} if grid else {})}, protocol=protocol)


def _stage(entry: Entry) -> str:
    return entry.stage if entry.stage in ("train", "prepare") else f"{entry.stage} {entry.name}"


def _cause_is_elsewhere(error: Mapping[str, Any], failed: Sequence[tuple[Entry, Any]]) -> bool:
    """Whether what failed belongs to no row (data), so that the row itself must say that it has no numbers."""
    return error["needs"] not in {entry.cell.name for entry, _ in failed if entry.cell}


def _grid(cells: Cells) -> list[dict[str, Any]]:
    """What each row's learning rate was chosen from."""
    if not cells.recipe.grid:
        return []
    return [
        {
            "model": model,
            "label": row.label,
            "held_out_nll": [
                {"learning_rate": rate, "nll": nll} for rate, nll in cells.tried(model, row).items()
            ],
            "chosen": cells.chosen(model, row),
        }
        for model in cells.recipe.models
        for row in cells.rows
    ]  # fmt: skip


def _have_ks(worker: Worker, cell: Cell, section: EvalConfig, folder: Path) -> None:
    """Have every k that the recipe asks for in the cell's Finding; the samples are there, so nothing is drawn."""
    job = cell.job
    assert isinstance(job, EvalJob)
    (path,) = sorted((folder / FINDINGS).glob("pass-at-k-*.json"))
    there = [at["k"] for at in Finding.load(path).numbers["pass_at_k"]]
    if set(section.k or ()) <= set(there):
        return
    from ranktuner.evals.grade import Limits
    from ranktuner.evals.run import grade_again, stored_plans

    ks = tuple(sorted({*there, *(section.k or ())}))
    (plan,) = stored_plans(folder, ks=ks)
    limits = Limits(2, job.config.grade_seconds, job.config.allow_unsafe)
    grade_again(plan, folder, limits=limits, say=worker.say)


def _diagnosed(cells: Cells, entries: Sequence[Entry]) -> Iterator[tuple[str, Finding]]:
    """Every diagnostic with its model in the title, where there are several."""
    done = [
        e
        for e in entries
        if e.stage == "diagnose" and e.cell and e.name != "inference-entropy" and cells.store.done(e.cell) is not None
    ]
    for entry in done:
        assert entry.cell
        found = Finding.load(cells.store.folder(entry.cell) / "finding.json")
        parts = [entry.model, entry.label if entry.label != ORIGINAL else ""]
        if entry.model and len(done) > 1:
            found = replace(found, title=f"{found.title}: {', '.join(part for part in parts if part)}")
        same = [e for e in done if (e.name, e.model, e.label) == (entry.name, entry.model, entry.label)]
        number = str(same.index(entry) + 1) if len(same) > 1 else ""
        yield file_name(entry.name, *parts, number), found


def _entropies(cells: Cells, entries: Sequence[Entry]) -> Iterator[tuple[str, Finding]]:
    """For every model and task: the inference entropy of all rows side by side."""
    done = [e for e in entries if e.stage == "diagnose" and e.name == "inference-entropy" and e.cell]
    done = [e for e in done if e.cell and cells.store.done(e.cell) is not None]
    if not done:
        return
    from ranktuner.diagnostics.inference_entropy import inference_entropy
    from ranktuner.diagnostics.table import read_table
    from ranktuner.evals.plan import file_name as file_of

    for at, model in dict.fromkeys((entry.at, entry.model) for entry in done):
        rows = [entry for entry in done if (entry.at, entry.model) == (at, model)]
        for name in cells.recipe.diagnose[at].tasks:
            task = cells.task(name)[2]
            tables = {
                entry.label: read_table(cells.store.folder(entry.cell) / f"{file_of(task)}.parquet")
                for entry in rows
                if entry.cell
            }
            found = inference_entropy(tables)
            title = f"{found.title}: {model} on {task}"
            protocol = {**found.protocol, "model": model, "task": task}
            yield file_name("inference-entropy", model, task), replace(found, title=title, protocol=protocol)


def file_name(*parts: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.+-]+", "_", "-".join(part for part in parts if part)).strip("_")


def _report(folder: Path, cells: Cells, entries: Sequence[Entry], say: Any) -> Path:
    """Write the page: the Findings, and the trainings of each row's first seed where there is room for them."""
    from ranktuner.report import write

    title = cells.recipe.title or cells.recipe.name
    several = len(cells.recipe.models) > 1
    runs: dict[Path, str] = {}
    for e in entries:
        if e.stage == "train" and e.cell and e.seed == cells.recipe.seeds[0] and cells.store.done(e.cell) is not None:
            runs.setdefault(cells.store.folder(e.cell) / "run", f"{e.label}, {e.model}" if several else e.label)
    try:
        write([folder / FINDINGS, *runs], folder / REPORT, title, runs)
    except DataError as error:
        if not runs:
            raise
        say(f"note     the report leaves the curves of the trainings out ({error})")
        write([folder / FINDINGS], folder / REPORT, title)
    return folder / REPORT
