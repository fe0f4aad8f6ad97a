"""Regimes: where tokens, loss and weight lie on each side of 2 bits of entropy, and over the (p, H) plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktuner.bounds import HIGH_ENTROPY_BITS
from ranktuner.diagnostics.summaries import need, provenance_of, weights_of
from ranktuner.diagnostics.table import TokenTable
from ranktuner.findings import Finding

Array = NDArray[Any]

LEAST_TOKENS = 100
BORDER_P = 0.5


def quadrants(table: TokenTable) -> dict[str, Array]:
    """Return the four regimes of the (p, H) plane, name -> which tokens ([N] bool)."""
    sure, right = table.entropy_bits < HIGH_ENTROPY_BITS, table.p >= BORDER_P
    return {
        "sure and right": sure & right,
        "sure and wrong": sure & ~right,
        "unsure and right": ~sure & right,
        "unsure and wrong": ~sure & ~right,
    }


def regimes(tables: Mapping[str, TokenTable], methods: Sequence[str] = ("sft",)) -> Finding:
    """Return the shares of tokens, nll and weight in the entropy regimes.

    Args:
        tables: name of the set -> token table.
        methods: specs of the methods whose weights are shared out.
    """
    sets = [{"name": name, **_of_set(name, table, methods)} for name, table in tables.items()]
    return Finding(
        kind="regimes",
        title="Where tokens and weight lie on each side of 2 bits",
        n=sum(s["tokens"] for s in sets),
        numbers={"border_bits": HIGH_ENTROPY_BITS, "border_p": BORDER_P, "sets": sets},
        protocol={
            "unit": "tokens",
            "high": f"H >= {HIGH_ENTROPY_BITS:g} bits",
            "right": f"p >= {BORDER_P:g}",
            "effective_tokens": "(sum w)^2 / (N sum w^2)",
            "methods": list(methods),
        },
        provenance=provenance_of(tables),
    )


def _of_set(name: str, table: TokenTable, methods: Sequence[str]) -> dict[str, Any]:
    need(len(table), LEAST_TOKENS, "tokens", name)
    high = table.entropy_bits >= HIGH_ENTROPY_BITS
    nll = table.nll.astype(np.float64)
    weights = {method: weights_of(table, method) for method in methods}
    return {
        "tokens": len(table),
        "low": {"tokens": float((~high).mean()), "nll": share(nll, ~high)},
        "high": {"tokens": float(high.mean()), "nll": share(nll, high)},
        "mean_entropy_bits": float(table.entropy_bits.mean(dtype=np.float64)),
        "mean_nll": float(nll.mean()),
        "weights": [{"method": method, **_of_weights(w, high)} for method, w in weights.items()],
        "quadrants": [
            {
                "name": quadrant,
                "entropy": "high" if quadrant.startswith("unsure") else "low",
                "p": "high" if quadrant.endswith("right") else "low",
                "tokens": float(inside.mean()),
                "weights": {method: share(w, inside) for method, w in weights.items()},
            }
            for quadrant, inside in quadrants(table).items()
        ],
    }


def _of_weights(w: Array, high: Array) -> dict[str, Any]:
    square = float((w**2).sum())
    return {
        "low": share(w, ~high),
        "high": share(w, high),
        "mean_low": float(w[~high].mean()) if (~high).any() else None,
        "mean_high": float(w[high].mean()) if high.any() else None,
        "effective_tokens": float(w.sum() ** 2 / (len(w) * square)) if square else 0.0,
    }


def share(values: Array, inside: Array) -> float | None:
    """Return the part of the sum that lies inside; None where everything is 0."""
    total = float(values.sum())
    return float(values[inside].sum()) / total if total else None
