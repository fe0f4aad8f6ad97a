"""Surface: the indicator I over rank and expected rank, for the default and the paper's other pairs (f, g)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ranktuner.bounds import indicator
from ranktuner.diagnostics.summaries import rounded
from ranktuner.errors import InputError
from ranktuner.findings import Finding, provenance

PAIRS = (
    ("inv-log", "exp2"), ("inv-log", "exp-half"), ("inv-log", "exp-double"),
    ("neg-log", "exp2"), ("inv-sqrt", "exp2"), ("inv", "exp2"),
)  # fmt: skip
"""The paper's six, the default first."""
LABELS = {
    "inv-log": "1/log2(1+x)",
    "neg-log": "-log2(1+x)",
    "inv-sqrt": "(1+x)^-1/2",
    "inv": "1/(1+x)",
    "exp2": "2^x",
    "exp-half": "e^(x/2)",
    "exp-double": "e^(2x)",
}


def surface(points: int = 41, largest: float = 1000.0) -> Finding:
    """Return I on a grid of ranks and expected ranks from 1 to `largest`, both growing geometrically.

    Args:
        points: of each axis.
        largest: end of both axes.
    """
    if points < 2 or not 1 < largest < 1e9:
        raise InputError(
            f"surface of {points} points up to {largest:g}: expected at least 2 points, and an end above 1"
        )
    axis = torch.from_numpy(np.geomspace(1, largest, points))
    rank, expected = axis[:, None].expand(points, points), axis[None, :].expand(points, points)
    surfaces: list[dict[str, Any]] = [
        {
            "f": LABELS[f],
            "g": LABELS[g],
            "indicator": [rounded(row) for row in indicator(rank, expected, f, g).tolist()],
        }
        for f, g in PAIRS
    ]
    return Finding(
        kind="surface",
        title="The indicator over rank and expected rank",
        n=points * points,
        numbers={"rank": rounded(axis), "expected_rank": rounded(axis), "surfaces": surfaces},
        protocol={"unit": "grid points", "indicator": "I = g(f(R) - f(E[R]))"},
        provenance=provenance(),
    )
