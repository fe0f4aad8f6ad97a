"""Tightness: how far the cheap bounds are from the truth, and whether any token is on the wrong side of one.

1/R - p is what is lost when the rank is read from the probability (R <= 1/p); 1/s - 1/E[R] what is lost when the
expected rank is read from entropy and top probability (s <= E[R]). Both lie in [0, 1) but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ranktuner import bounds
from ranktuner.diagnostics.summaries import describe, grid, histogram, need, provenance_of, rounded
from ranktuner.diagnostics.table import TokenTable
from ranktuner.findings import Finding

Array = NDArray[Any]

LEAST_TOKENS = 100
TOLERANCE = {"float32": 5e-6, "bfloat16": 5e-6, "float16": 5e-6, "float64": 1e-10}
"""Relative rounding error allowed by the model's dtype. Statistics are fp32 whatever the logits' dtype (float64 stays
float64): a sum of V exponentials and V p log p terms, rounded to fp32, moves p, 2^H and p_max by up to a few 1e-6."""
BITS_TOLERANCE = 2e-6
"""Rounding of an entropy below 2 bits, in fp32; allowed before h is inverted."""
POINTS = 300
GAP_EDGES = np.linspace(0.0, 1.0, 26).round(2)
P_EDGES = np.linspace(0.0, 1.0, 31).round(4)
BINS = 30


def tightness(tables: Mapping[str, TokenTable]) -> Finding:
    """Return the tightness of both bounds over one or more sets, name -> token table."""
    sets = [{"name": name, **_of_set(name, table)} for name, table in tables.items()]
    total = sum(s["tokens"] for s in sets)
    wrong = sum(b["violations"] for s in sets for b in s["bounds"])
    return Finding(
        kind="tightness",
        title="How tight the bounds of rank and expected rank are",
        n=total,
        numbers={"sets": sets, "envelopes": envelopes()},
        protocol={
            "unit": "tokens",
            "gaps": "1/R - p and 1/s - 1/E[R] over all supervised tokens; standard deviation of the population",
            "tolerance": "relative, by the dtype of the model: "
            + ", ".join(f"{k} {v:g}" for k, v in TOLERANCE.items())
            + f"; {BITS_TOLERANCE:g} bits of H before h^-1",
            "violations": wrong,
        },
        provenance=provenance_of(tables),
    )


def _of_set(name: str, table: TokenTable) -> dict[str, Any]:
    need(len(table), LEAST_TOKENS, "tokens", name)
    p, rank, expected = table.p, table.rank.astype(np.float64), table.expected_rank
    bits = table.entropy_bits.astype(np.float64)
    # Whole numbers, so that every rank of a bin is at least its first edge, where p <= 1/R is drawn.
    rank_edges = np.unique(np.geomspace(1, rank.max() + 1, BINS + 1).round())
    expected_edges = np.array(rounded(np.geomspace(1, max(2.0, float(expected.max())), BINS + 1)))
    bits_edges = np.array(rounded(np.linspace(0, max(4.0, float(bits.max())), BINS + 1)))
    few = np.unique(np.linspace(0, len(table) - 1, min(POINTS, len(table))).astype(int))
    return {
        "tokens": len(table),
        "gaps": [
            _gap("rank", "1/R - p", 1 / rank - p),
            _gap("expected_rank", "1/s - 1/E[R]", 1 / table.s - 1 / expected),
        ],
        "bounds": check_bounds(table),
        "rank_p": _density("rank", rank, rank_edges, "p", p, P_EDGES),
        "entropy_expected_rank": _density("entropy_bits", bits, bits_edges, "expected_rank", expected, expected_edges),
        "points": {
            "p": rounded(p[few]),
            "rank": table.rank[few].tolist(),
            "entropy_bits": rounded(bits[few]),
            "expected_rank": rounded(expected[few]),
        },
    }


def check_bounds(table: TokenTable) -> list[dict[str, Any]]:
    """Return, for each bound that holds for every distribution, how many tokens violate it beyond rounding."""
    tolerance = TOLERANCE.get(str(table.meta.get("dtype")), TOLERANCE["float32"])
    bits, s = torch.from_numpy(table.entropy_bits.astype(np.float64)), torch.from_numpy(table.s.astype(np.float64))
    low = table.entropy_bits < bounds.HIGH_ENTROPY_BITS
    vocab_size = int(table.meta["vocab_size"])
    # h is flat where the distribution is nearly uniform: there the rounding of H moves h^-1 by its square root.
    fano = bounds.rank_bound_from_entropy((bits - BITS_TOLERANCE).clamp_min(0), vocab_size).numpy()
    surrogate = bounds.surrogate_indicator(torch.from_numpy(table.nll.astype(np.float64)), s).numpy()
    every = np.ones(len(table), dtype=bool)
    # smaller side, larger side, where it is claimed
    claims = {
        "p <= 1/R": (table.p, 1 / table.rank.astype(np.float64), every),
        "s(H) <= E[R]": (table.s, table.expected_rank, every),
        "2 - h^-1(H) <= E[R] (H < 2)": (fano, table.expected_rank, low),
        "surrogate I <= I": (surrogate, table.indicator, every),
    }
    found = []
    for name, (smaller, larger, where) in claims.items():
        excess = ((smaller - larger) / larger)[where]
        found.append(
            {
                "name": name,
                "tokens": int(where.sum()),
                "violations": int((excess > tolerance).sum()),
                "worst": float(excess.max()) if len(excess) else None,
                "tolerance": tolerance,
            }
        )
    return found


def envelopes(vocab_size: int = 50_000) -> dict[str, Any]:
    """Return the curves that no token can cross: p = 1/R, and the smallest E[R] at each entropy."""
    rank = np.geomspace(1, vocab_size, 60)
    # The bound changes its form at 2 bits, in a step: both sides of it are points of the curve.
    bits = np.sort(np.append(np.linspace(0, 14, 71), bounds.HIGH_ENTROPY_BITS - 1e-9))
    lower = bounds.rank_bound_from_entropy(torch.from_numpy(bits), vocab_size).numpy()
    return {
        "rank_p": {"rank": rank.tolist(), "p": (1 / rank).tolist()},
        "entropy_expected_rank": {"entropy_bits": bits.tolist(), "lower": lower.tolist(), "upper": None},
    }


def _gap(name: str, label: str, gap: Array) -> dict[str, Any]:
    return {"name": name, "label": label, **describe(gap), "histogram": histogram(gap, GAP_EDGES)}


def _density(x_name: str, x: Array, x_edges: Array, y_name: str, y: Array, y_edges: Array) -> dict[str, Any]:
    counts = grid(x, y, x_edges, y_edges).astype(int)
    edges = {"x_edges": x_edges.tolist(), "y_edges": y_edges.tolist()}
    return {"x": x_name, "y": y_name, **edges, "counts": counts.tolist()}
