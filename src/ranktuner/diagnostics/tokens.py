"""The token view: some rows with everything known of their tokens, ready to be coloured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ranktuner.diagnostics.summaries import need, provenance_of, rounded, weights_of
from ranktuner.diagnostics.table import TokenTable
from ranktuner.errors import InputError, nearest
from ranktuner.findings import Finding

MOST_TOKENS = 6000
"""Of one view: 16 numbers a token make about 1 MB of JSON."""
UNDER_LEARNED = 0.05


def tokens(
    table: TokenTable,
    methods: Sequence[str] = ("sft", "ranktuner"),
    *,
    rows: Sequence[str] | None = None,
    most: int = MOST_TOKENS,
    prompts: Mapping[str, str] | None = None,
) -> Finding:
    """Return the token view of some rows.

    Args:
        table: a token table.
        methods: specs of the methods whose weights can be shown.
        rows: ids of the rows to show; default: from the front, as many whole rows as fit.
        most: tokens shown at most (at least one row is shown).
        prompts: id of the row -> what came before the answer.
    """
    need(len(table), 1, "tokens")
    chosen = _choose(table, rows, most)
    weights = {method: weights_of(table, method) for method in methods}
    shown = np.concatenate([np.arange(a, b) for _, a, b in chosen])
    worst = under_learned(table, shown)
    view = [
        {
            "id": table.row_ids[number],
            "prompt": (prompts or {}).get(table.row_ids[number]),
            "text": table.row_text(a, b),
            "tokens": _columns(table, weights, a, b),
            "under_learned": [int(i) - a for i in worst if a <= i < b],
        }
        for number, a, b in chosen
    ]
    columns = ("p", "nll", "entropy_bits", "p_max", "rank", "expected_rank", "indicator")
    ranges: dict[str, Any] = {name: _range(getattr(table, name)[shown]) for name in columns}
    ranges["weights"] = {method: _range(w[shown]) for method, w in weights.items()}
    return Finding(
        kind="tokens",
        title="What the model says about each token",
        n=len(shown),
        numbers={
            "methods": list(methods),
            "rows": view,
            "ranges": ranges,
            "of_rows": len(table.bounds_of_rows()),
            "of_tokens": len(table),
        },
        protocol={
            "unit": "tokens",
            "under_learned": f"R > E[R], largest 1/I first, at most {UNDER_LEARNED:.0%} of the tokens shown",
            "choice": "named rows" if rows else f"rows from the front, at most {most} tokens",
        },
        provenance=provenance_of({"tokens": table}),
    )


def under_learned(table: TokenTable, among: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the indices of the most under-learned of some tokens, the worst first: R > E[R] and the largest 1/I."""
    indicator = table.indicator[among]
    most = max(1, round(UNDER_LEARNED * len(among)))
    order = np.argsort(indicator, kind="stable")[:most]
    behind = table.rank[among][order] > table.expected_rank[among][order]
    return np.asarray(among[order[behind]])


def _choose(table: TokenTable, rows: Sequence[str] | None, most: int) -> list[tuple[int, int, int]]:
    bounds = table.bounds_of_rows()
    if rows is not None:
        by_id = {table.row_ids[number]: (number, a, b) for number, a, b in bounds}
        missing = [row for row in rows if row not in by_id]
        if missing:
            raise InputError(f"the token table has no row {missing[0]!r}; {nearest(missing[0], by_id)}")
        return [by_id[row] for row in rows]
    chosen: list[tuple[int, int, int]] = []
    total = 0
    for number, a, b in bounds:
        if chosen and total + b - a > most:
            break
        chosen.append((number, a, b))
        total += b - a
    return chosen


def _columns(table: TokenTable, weights: Mapping[str, Any], a: int, b: int) -> dict[str, Any]:
    plain = {"text": table.text[a:b].tolist()} | {
        name: getattr(table, name)[a:b].tolist() for name in ("start", "end", "rank")
    }
    floats = ("p", "nll", "entropy_bits", "p_max", "expected_rank", "s", "k", "indicator")
    return (
        plain
        | {name: rounded(getattr(table, name)[a:b]) for name in floats}
        | {"weights": {method: rounded(w[a:b]) for method, w in weights.items()}}
    )


def _range(values: Any) -> list[float]:
    return rounded([values.min(), values.max()])
