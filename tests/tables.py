"""Token tables made by hand, for the diagnostics: every column follows from a few that a test writes down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ranktuner import bounds
from ranktuner.diagnostics.table import TokenTable


def table(
    rows: Sequence[Sequence[str]],
    *,
    p: Sequence[float] | float = 0.5,
    rank: Sequence[int] | int = 1,
    entropy_bits: Sequence[float] | float = 1.0,
    p_max: Sequence[float] | float | None = None,
    expected_rank: Sequence[float] | float | None = None,
    weights: Mapping[str, Sequence[float]] | None = None,
    ids: Sequence[str] | None = None,
    **meta: Any,
) -> TokenTable:
    """Return a table of rows of token texts; numbers are one value for all tokens, or one for each."""
    count = sum(map(len, rows))
    p_N, rank_N, bits_N = (np.broadcast_to(np.asarray(v, float), count) for v in (p, rank, entropy_bits))
    top_N = np.broadcast_to(np.asarray(p_N if p_max is None else p_max, float), count)
    s = bounds.rank_bound(torch.tensor(bits_N.copy()), torch.tensor(top_N.copy()))
    expected = (
        s if expected_rank is None else torch.tensor(np.broadcast_to(np.asarray(expected_rank, float), count).copy())
    )
    ranks = torch.tensor(rank_N.copy())
    lengths = [[len(text) for text in row] for row in rows]
    end = np.concatenate([np.cumsum(row) for row in lengths]) if count else np.empty(0)
    return TokenTable(
        row=np.repeat(np.arange(len(rows)), [len(r) for r in rows]).astype(np.int32),
        position=np.concatenate([np.arange(len(r)) + 5 for r in rows]).astype(np.int32),
        token_id=np.arange(count, dtype=np.int32),
        text=np.array([text for row in rows for text in row], dtype=object),
        start=(end - np.array([n for row in lengths for n in row])).astype(np.int32),
        end=end.astype(np.int32),
        nll=(-np.log(p_N)).astype(np.float32),
        rank=rank_N.astype(np.int32),
        is_top=rank_N == 1,
        entropy_bits=bits_N.astype(np.float32),
        p_max=top_N.astype(np.float32),
        expected_rank=expected.numpy(),
        s=s.numpy(),
        k=bounds.elasticity(bounds.xi(ranks, s)).numpy(),
        indicator=bounds.indicator(ranks, expected).numpy(),
        weights={name: np.asarray(w, np.float32) for name, w in (weights or {}).items()},
        row_ids=tuple(ids or [str(i) for i in range(len(rows))]),
        meta={"vocab_size": 400, "dtype": "float32", **meta},
    )
