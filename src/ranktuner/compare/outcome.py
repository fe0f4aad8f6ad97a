"""What a comparison found: every row of every model and task, with differences that are paired over problems. No torch.

The Finding `comparison` (layout in docs/compare.md) is made from what the evaluations stored, never from a model, so it
can be made again at any time, also while some cells are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ranktuner.compare.paper import Paper, read_paper
from ranktuner.compare.printing import print_table
from ranktuner.compare.recipe import ORIGINAL, Recipe
from ranktuner.errors import DataError
from ranktuner.evals.passk import BOOTSTRAP_DRAWS, paired_difference, pooled_pass_at_k, uncertainty
from ranktuner.evals.records import VERDICTS
from ranktuner.evals.results import BOOTSTRAP_SEED
from ranktuner.findings import Finding, provenance
from ranktuner.spec import parse

__all__ = ["Evaluated", "Failed", "comparison", "print_table"]

Counts = dict[str, tuple[int, int]]
"""Problem -> (samples, correct ones)."""
VARIED = ("temperature", "top_p", "max_new_tokens", "seed")
"""Settings of drawing by which two evaluations of one task are told apart."""


@dataclass(frozen=True)
class Evaluated:
    """One evaluation that is finished."""

    model: str
    """As the recipe names it."""
    label: str
    """The row's label, or `original`."""
    seed: int | None
    """Of the training; None for the original."""
    folder: Path
    """What `ranktuner eval` wrote."""


@dataclass(frozen=True)
class Failed:
    """One cell that did not finish."""

    model: str
    label: str
    seed: int | None
    stage: str
    error: str


@dataclass(frozen=True)
class _Row:
    """The evaluations of one row on one task."""

    label: str
    found: Sequence[tuple[int | None, Finding]]

    def counts(self) -> Counts:
        """Pool the seeds: their samples are samples of the same problem."""
        pooled: Counts = {}
        for _, finding in self.found:
            for name, (n, c) in _counts(finding).items():
                n_before, c_before = pooled.get(name, (0, 0))
                pooled[name] = (n_before + n, c_before + c)
        return pooled


def comparison(recipe: Recipe, evaluated: Sequence[Evaluated], failed: Sequence[Failed] = ()) -> Finding:
    """Return the Finding `comparison` of what is finished; what is not stands in it as failed.

    Args:
        recipe: says the order of models, rows and tasks, the k, and the file of the paper's numbers.
        evaluated: the finished evaluations; the seeds of a row are pooled.
        failed: the cells that did not finish.
    """
    evaluated = sorted(evaluated, key=lambda one: -1 if one.seed is None else one.seed)
    cells = [(one, finding) for one in evaluated for finding in _findings(one)]
    names = _task_names([finding for _, finding in cells])
    every: list[Evaluated | Failed] = [*evaluated, *failed]
    models = _ordered([one.model for one in every], recipe.models)
    labels = [ORIGINAL, *(row.label for row in recipe.methods)]
    labels = _ordered([one.label for one in every], labels)
    wanted = [task for one in recipe.eval for task in one.tasks]
    tasks = _ordered([names[_way(finding)] for _, finding in cells], wanted)
    methods = {ORIGINAL: ORIGINAL, **{row.label: row.method for row in recipe.methods}}
    file = recipe.paper_file()
    paper = read_paper(file) if file else None
    tables = []
    for model in models:
        for task in tasks:
            here = [(one, f) for one, f in cells if one.model == model and names[_way(f)] == task]
            rows = [_Row(label, [(one.seed, f) for one, f in here if one.label == label]) for label in labels]
            missing = [one for one in failed if one.model == model]
            tables.append(_table(model, task, _first_k(recipe, task), rows, methods, missing, paper))
    problems = {(names[_way(finding)], problem) for _, finding in cells for problem in _counts(finding)}
    return Finding(
        kind="comparison",
        title=recipe.title or recipe.name,
        n=len(problems),
        numbers={
            "recipe": recipe.name,
            "models": models,
            "tasks": tasks,
            "rows": [{"label": label, "method": methods.get(label, label)} for label in labels],
            "tables": tables,
            "failed": [asdict(one) for one in failed],
            "paper": {"title": paper.title, "source": paper.source} if paper else None,
        },
        protocol={
            "unit": "problem",
            "interval": f"95 % percentile bootstrap over problems, {BOOTSTRAP_DRAWS} draws, seed {BOOTSTRAP_SEED}",
            "differences": "paired: both rows over the same resampled problems",
            "seeds": "pooled: the samples of every training seed are samples of the same problem",
            "best": "the other trained row with the highest pass@k here, chosen on these same problems",
            "tasks": {names[_way(f)]: {k: f.protocol.get(k) for k in ("decoding", "grader", "data")} for _, f in cells},
        },
        provenance=provenance(
            evaluations=[
                {
                    "model": one.model,
                    "label": one.label,
                    "seed": one.seed,
                    "task": finding.numbers["task"],
                    "fingerprint": finding.protocol.get("fingerprint"),
                    "decoding": finding.protocol.get("decoding"),
                }
                for one, finding in cells
            ]
        ),
    )


def _findings(one: Evaluated) -> list[Finding]:
    paths = sorted((one.folder / "findings").glob("pass-at-k-*.json"))
    if not paths:
        raise DataError(
            f"{one.folder}: no findings/pass-at-k-*.json, so the evaluation of {one.label} ({one.model}) has not "
            "finished; run it again: it goes on from its stored samples"
        )
    return [Finding.load(path) for path in paths]


def _counts(finding: Finding) -> Counts:
    return {one["problem"]: (one["n"], one["correct"]) for one in finding.numbers["problems"]}


def _way(finding: Finding) -> str:
    """What tells evaluations apart: the task, and how its answers were drawn."""
    drawn = finding.protocol.get("decoding") or {}
    return json.dumps([finding.numbers["task"], {key: drawn.get(key) for key in VARIED}])


def _task_names(findings: Sequence[Finding]) -> dict[str, str]:
    """Name each way; a task that was asked in several ways says in which."""
    ways = {way: json.loads(way) for way in dict.fromkeys(map(_way, findings))}
    names = {}
    for way, (task, drawn) in ways.items():
        others = [other for name, other in ways.values() if name == task]
        varied = [f"{key} {drawn[key]}" for key in VARIED if any(other[key] != drawn[key] for other in others)]
        names[way] = f"{task} ({', '.join(varied)})" if varied else task
    return names


def _ordered(found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return what was found once each, in the wanted order; what is not named there comes last."""
    there = dict.fromkeys(found)
    return [name for name in wanted if name in there] + [name for name in there if name not in wanted]


def _first_k(recipe: Recipe, task: str) -> int | None:
    """Return the k that the recipe puts first for the task."""
    return next((one.k[0] for one in recipe.eval if one.k and task in (*one.tasks, *map(_stem, one.tasks))), None)


def _stem(task: str) -> str:
    return Path(task).stem if task.endswith(".toml") else task


def _table(
    model: str,
    task: str,
    first: int | None,
    rows: Sequence[_Row],
    methods: Mapping[str, str],
    failed: Sequence[Failed],
    paper: Paper | None,
) -> dict[str, Any]:
    """One model on one task."""
    ks = sorted({at["k"] for row in rows for _, finding in row.found for at in finding.numbers["pass_at_k"]})
    counts = {row.label: row.counts() for row in rows if row.found}
    made = []
    for row in rows:
        theirs = _paper_row(paper, model, task, row.label, methods.get(row.label, ""), ks)
        lost = [one for one in failed if one.label == row.label and one.seed not in [seed for seed, _ in row.found]]
        record = {"label": row.label, "method": methods.get(row.label, row.label), **_pooled(row, ks, theirs)}
        record["failed"] = [{"seed": one.seed, "stage": one.stage, "error": one.error} for one in lost]
        if row.found or lost:
            made.append(record)
    _differences(made, counts, ks)
    return {
        "model": model,
        "task": task,
        "ks": ks,
        "k": first if first in ks else ks[0] if ks else None,
        "problems": max((len(one) for one in counts.values()), default=0),
        "rows": made,
    }


def _pooled(row: _Row, ks: Sequence[int], paper: Mapping[int, float]) -> dict[str, Any]:
    """The numbers of one row over all its seeds."""
    counts, findings = row.counts(), [finding.numbers for _, finding in row.found]
    names, pairs = list(counts), list(counts.values())
    least = min((n for n, _ in pairs), default=0)
    samples = sum(one["samples"] for one in findings)
    at = []
    for k in ks if row.found else ():
        record: dict[str, Any] = {"k": k, "value": None, "standard_error": None, "low": None, "high": None}
        if k <= least:
            spread = uncertainty(pairs, k, seed=BOOTSTRAP_SEED, names=names)
            record |= {"value": pooled_pass_at_k(pairs, k, names), **asdict(spread)}
        each = [(seed, by_k[k]) for seed, f in row.found if k in (by_k := _values(f))]
        values = [value for _, value in each]
        record["seeds"] = [{"seed": seed, "value": value} for seed, value in each]
        record["seed_mean"] = fmean(values) if values else None
        record["seed_deviation"] = stdev(values) if len(values) > 1 else None
        record["paper"] = paper.get(k)
        at.append(record)
    return {
        "seeds": [seed for seed, _ in row.found],
        "problems": len(counts),
        "n_least": least,
        "n_most": max((n for n, _ in pairs), default=0),
        "samples": samples,
        "complete": all(one["complete"] for one in findings),
        "verdicts": {name: sum(one["verdicts"].get(name, 0) for one in findings) for name in VERDICTS},
        "truncated": sum(one["truncated"] for one in findings),
        "tokens_per_sample": sum(one["tokens"]["sum"] for one in findings) / samples if samples else None,
        "pass_at_k": at,
    }


def _values(finding: Finding) -> dict[int, float]:
    return {at["k"]: at["value"] for at in finding.numbers["pass_at_k"]}


def _differences(rows: Sequence[dict[str, Any]], counts: Mapping[str, Counts], ks: Sequence[int]) -> None:
    """Put into each row its differences to the original and to the best other method, at every k."""
    values = {row["label"]: {at["k"]: at["value"] for at in row["pass_at_k"]} for row in rows}
    for row in rows:
        own = row["label"]
        row["to_original"], row["to_best"] = [], []
        if own == ORIGINAL:
            continue
        for k in ks:
            others = {
                label: at[k] for label, at in values.items() if label not in (own, ORIGINAL) and at.get(k) is not None
            }
            if found := _difference(own, ORIGINAL, k, values, counts):
                row["to_original"].append(found)
            best = max(others, key=lambda label: others[label], default=None)
            if best and (found := _difference(own, best, k, values, counts)):
                row["to_best"].append(found)


def _difference(
    own: str, other: str, k: int, values: Mapping[str, Mapping[int, float | None]], counts: Mapping[str, Counts]
) -> dict[str, Any] | None:
    """One row less another over the problems that both have; None where one of them has no number."""
    if values.get(own, {}).get(k) is None or values.get(other, {}).get(k) is None:
        return None
    shared = [name for name in counts[own] if name in counts[other]]
    if not shared:
        return None
    pairs, others = [counts[own][name] for name in shared], [counts[other][name] for name in shared]
    found = paired_difference(pairs, others, k, seed=BOOTSTRAP_SEED, names=shared)
    return {"to": other, "k": k, "problems": len(shared), **asdict(found)}


def _paper_row(
    paper: Paper | None, model: str, task: str, label: str, method: str, ks: Sequence[int]
) -> dict[int, float]:
    """Return k -> the paper's share for the row of this method; where several rows have it, that of this label."""
    for table in paper.for_model(model) if paper else ():
        rows = [row for row in table.rows if row.method and parse(row.method) == parse(method or label)]
        if len(rows) > 1:
            rows = [row for row in rows if row.label.lower() == label.lower()]
        columns = {k: f"{task} pass@{k}" for k in ks if f"{task} pass@{k}" in table.columns}
        if rows and columns and table.units == "percent":
            values = {k: table.value(rows[0].label, column) for k, column in columns.items()}
            return {k: value / 100 for k, value in values.items() if value is not None}
    return {}
