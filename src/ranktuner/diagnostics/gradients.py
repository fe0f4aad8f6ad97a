"""Gradients: the shape W(p) = w (1 - p) of each method, and where over the (p, H) plane its gradient mass goes.

A token's gradient in the logits is w (p_v - 1[v = label]); its L1 norm is 2 w (1 - p), so w (1 - p) is its mass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ranktuner.bounds import LN2, fano_inverse
from ranktuner.diagnostics.regimes import quadrants, share
from ranktuner.diagnostics.summaries import grid, need, provenance_of, rounded, weights_of
from ranktuner.diagnostics.table import TokenTable
from ranktuner.findings import Finding
from ranktuner.registry import method
from ranktuner.signals import Signals

Array = NDArray[Any]

LEAST_TOKENS = 100
SHAPE_P = np.concatenate([np.geomspace(1e-4, 0.1, 40, endpoint=False), np.linspace(0.1, 1.0, 61)])
SHAPE_BITS = (0.5, 2.0, 4.0)
SHAPE_VOCAB = 50_000
P_EDGES = np.linspace(0.0, 1.0, 21)
BITS_EDGES = np.linspace(0.0, 12.0, 25)


def gradients(table: TokenTable | None, methods: Sequence[str]) -> Finding:
    """Return the gradient shapes of methods and, with a table, where their gradient mass goes.

    Args:
        table: a token table, or None for the shapes alone.
        methods: specs.
    """
    return Finding(
        kind="gradients",
        title="Where each method's gradient goes",
        n=len(SHAPE_P) if table is None else len(table),
        numbers={
            "shapes": [shape for spec in methods for shape in shapes(spec)],
            "plane": None if table is None else plane(table, methods),
        },
        protocol={
            "unit": "points of a shape" if table is None else "tokens",
            "gradient": "w (1 - p), half the L1 norm of the gradient in the logits",
            "shapes": "R = floor(1/p), the largest that p allows; p_max = max(p, h^-1(H)); all entropy in the top K; "
            "sum p^2 = 2^-H; a method that looks back on steps (talr) looks back on nll 1",
            "vocab_size": SHAPE_VOCAB,
        },
        provenance=provenance_of({} if table is None else {"tokens": table}),
    )


def shapes(spec: str) -> list[dict[str, Any]]:
    """Return a method's W(p): one curve if nothing but p moves it, else one for each of three entropies."""
    curves = {bits: _weights_at(spec, SHAPE_P, bits) for bits in SHAPE_BITS}
    first = curves[SHAPE_BITS[0]]
    alone = all(np.allclose(w, first, rtol=1e-6, atol=1e-12) for w in curves.values())
    family = "p only" if alone else "p and H"
    return [
        {
            "name": spec,
            "family": family,
            "at": None if alone else {"entropy_bits": bits},
            "p": rounded(SHAPE_P),
            "w": rounded(w),
            "gradient": rounded(w * (1 - SHAPE_P)),
        }
        for bits, w in list(curves.items())[: 1 if alone else None]
    ]


def _weights_at(spec: str, p: Array, bits: float) -> Array:
    made = method(spec)
    label = torch.from_numpy(p)
    top = torch.maximum(label, fano_inverse(torch.full_like(label, bits), SHAPE_VOCAB))
    rank = torch.floor(1 / label + 1e-9)
    signals = Signals(
        nll=-label.log(),
        rank=rank.long(),
        is_top=rank == 1,
        entropy_bits=torch.full_like(label, bits),
        p_max=top,
        seq=torch.zeros(len(p), dtype=torch.int64),
        vocab_size=SHAPE_VOCAB,
        topk_entropy=torch.full_like(label, bits * LN2),
        sum_p2=torch.full_like(label, 2.0**-bits),
        mass_above=(1 - label) * (rank > 1),
    )
    if made.context is not None:
        made.context.prime(torch.ones_like(label), signals.seq)
    return made.weights(signals).double().numpy()


def plane(table: TokenTable, methods: Sequence[str]) -> dict[str, Any]:
    """Return the share of tokens and of every method's gradient mass in each cell of the (p, H) plane."""
    need(len(table), LEAST_TOKENS, "tokens")
    p, bits = table.p, table.entropy_bits.astype(np.float64)
    found = []
    for spec in methods:
        mass = weights_of(table, spec) * (1 - p)
        cells = grid(p, bits, P_EDGES, BITS_EDGES, mass)
        total = cells.sum()
        found.append(
            {
                "name": spec,
                "share": [rounded(row) for row in (cells / total if total else cells)],
                "quadrants": {name: share(mass, inside) for name, inside in quadrants(table).items()},
            }
        )
    tokens = grid(p, bits, P_EDGES, BITS_EDGES) / len(table)
    return {
        "p_edges": P_EDGES.tolist(),
        "entropy_edges": BITS_EDGES.tolist(),
        "tokens": [rounded(row) for row in tokens],
        "methods": found,
    }
