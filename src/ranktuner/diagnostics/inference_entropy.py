"""Inference entropy: how open the model is while it writes.

The entropy of the model's whole distribution at every token it generated, found by scoring the stored samples with the
model that wrote them (temperature 1: what the model says, not what the sampler made of it). The paper's runs are sample
indices: run r holds every problem's r-th sample.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktuner.bounds import HIGH_ENTROPY_BITS
from ranktuner.diagnostics.summaries import bootstrap, histogram, need, provenance_of, summary
from ranktuner.diagnostics.table import TokenTable
from ranktuner.errors import DataError
from ranktuner.findings import Finding

Array = NDArray[Any]

RUNS = 8
TEMPERATURE = 0.2
LEAST_SAMPLES = 8
BITS_EDGES = np.linspace(0.0, 12.0, 49)
_ID = re.compile(r"(.*)#(\d+)$", re.DOTALL)


def sample_id(problem: str, index: int) -> str:
    """Return the row id under which a sample is scored; `inference_entropy` reads problem and run from it."""
    return f"{problem}#{index}"


def inference_entropy(tables: Mapping[str, TokenTable]) -> Finding:
    """Return the predictive entropy of models over their own samples.

    Args:
        tables: name of the model -> token table of its samples, with rows named by `sample_id` and
            `meta["temperature"]`, `meta["truncated_samples"]`.
    """
    models = [{"name": name, **_of_model(name, table)} for name, table in tables.items()]
    temperatures = sorted({float(t.meta.get("temperature", TEMPERATURE)) for t in tables.values()})
    if len(temperatures) > 1:
        raise DataError(
            f"the samples were drawn at the temperatures {temperatures}: entropies of different temperatures "
            "cannot stand side by side; compare stores of one temperature"
        )
    return Finding(
        kind="inference-entropy",
        title="Entropy of the model while it answers",
        n=sum(m["tokens"] for m in models),
        numbers={"models": models},
        protocol={
            "unit": "generated tokens",
            "runs": max(len(m["entropy_bits"]["values"]) for m in models),
            "temperature": temperatures[0],
            "scored_at_temperature": 1.0,
            "high": f"H >= {HIGH_ENTROPY_BITS:g} bits",
            "interval": "95 %, bootstrap over problems",
        },
        provenance=provenance_of(tables),
    )


def _of_model(name: str, table: TokenTable) -> dict[str, Any]:
    rows = table.bounds_of_rows()
    need(len(rows), LEAST_SAMPLES, "samples with text", name)
    parts = [_ID.match(table.row_ids[number]) for number, _, _ in rows]
    if any(part is None for part in parts):
        raise DataError(
            f"{name}: not a table of samples: its rows are not named problem#index; use --samples to make one"
        )
    problems = np.unique([part.group(1) for part in parts if part], return_inverse=True)[1]
    runs = np.array([int(part.group(2)) for part in parts if part])
    count = np.array([b - a for _, a, b in rows], dtype=np.float64)
    columns = {
        "entropy_bits": table.entropy_bits.astype(np.float64),
        "high_share": (table.entropy_bits >= HIGH_ENTROPY_BITS).astype(np.float64),
        "nll": table.nll.astype(np.float64),
    }
    starts = [a for _, a, _ in rows]
    numbers = {key: _by_run(np.add.reduceat(column, starts), count, runs, problems) for key, column in columns.items()}
    return {
        **numbers,
        "samples": len(rows),
        "tokens": len(table),
        "truncated": int(table.meta.get("truncated_samples", 0)),
        "histogram": histogram(columns["entropy_bits"], BITS_EDGES),
    }


def _by_run(total: Array, count: Array, runs: Array, problems: Array) -> dict[str, Any]:
    """Token means of each run; their mean; the interval from problems drawn again."""

    def mean(times: Array) -> float:
        # mean over the runs of the runs' token means, as it is reported
        sums = [np.bincount(runs, weights=x * times) for x in (total, count)]
        there = sums[1] > 0
        return float((sums[0][there] / sums[1][there]).mean())

    values = [float(total[runs == run].sum() / count[runs == run].sum()) for run in np.unique(runs)]
    if problems.max() == 0:
        return summary(values)
    low, high = bootstrap([np.zeros(problems.max() + 1)], lambda times: mean(times[0][problems].astype(float)), seed=0)
    return summary(values, low, high)
