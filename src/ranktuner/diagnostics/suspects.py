"""Suspects: rows and passages of training data that do not belong where they stand, the most suspicious first.

Two kinds of trouble leave two kinds of trace, and each is looked for by itself:

* a **passage** the rest does not lead to (inserted text, another row's answer): for many tokens in a row the model
  neither expected the label nor knows what comes next, so nll + H is high. Its trace is the stretch with the largest
  sum of nll + H above the level that four fifths of all tokens stay under.
* a **sure and wrong** token (a wrong result, a wrong label): the model was sure of something else, so nll - H is high.

Both are measured in nats and put on one scale, that of the clean-looking majority: how many times the distance from the
median row to the row at P90 it lies above the median. A row's score is the larger of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktuner.bounds import LN2
from ranktuner.diagnostics.noise import planted_tokens
from ranktuner.diagnostics.summaries import need, provenance_of
from ranktuner.diagnostics.table import TokenTable
from ranktuner.findings import Finding

Array = NDArray[Any]

LEAST_ROWS = 20
LEVEL = 0.8
CAP = 0.98
"""No single token of a passage counts for more than this quantile: a passage is many tokens."""
MOST_ROWS = 50
REASONS = {
    "passage": "a passage the rest of the row does not lead to",
    "token": "a token that contradicts what the model is sure of",
}


@dataclass(frozen=True)
class Suspect:
    """One row with its traces."""

    row: int
    """Its number in the table."""
    first: int
    last: int
    """Its tokens, as indices into the table."""
    score: float
    reason: str
    span: tuple[int, int]
    """Tokens of the passage with the largest sum."""
    passage: float
    """That sum, nats."""
    token: int
    """The token with the largest nll - H."""
    excess: float
    """That difference, nats."""


def suspects(table: TokenTable) -> list[Suspect]:
    """Return every row of a table with its traces, the most suspicious first (equal ones in the table's order)."""
    rows = table.bounds_of_rows()
    need(len(rows), LEAST_ROWS, "rows")
    nll, nats = table.nll.astype(np.float64), table.entropy_bits.astype(np.float64) * LN2
    foreign = np.minimum(nll + nats, np.quantile(nll + nats, CAP)) - np.quantile(nll + nats, LEVEL)
    spans = [_heaviest(foreign[a:b]) for _, a, b in rows]
    tokens = [a + int(np.argmax(nll[a:b] - nats[a:b])) for _, a, b in rows]
    passage, excess = np.array([s[0] for s in spans]), (nll - nats)[tokens]
    scales = np.stack([_standard(passage), _standard(excess)])
    found = [
        Suspect(
            number, a, b, float(scales[:, i].max()), ("passage", "token")[int(scales[:, i].argmax())],
            (a + spans[i][1], a + spans[i][2]), float(passage[i]), tokens[i], float(excess[i]),
        )
        for i, (number, a, b) in enumerate(rows)
    ]  # fmt: skip
    return sorted(found, key=lambda s: -s.score)


def _heaviest(values: Array) -> tuple[float, int, int]:
    """Return sum, start and end of the stretch with the largest sum, at least one value long."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    lowest = np.minimum.accumulate(sums[:-1])
    end = int(np.argmax(sums[1:] - lowest)) + 1
    start = int(np.argmin(sums[:end]))
    return float(sums[end] - sums[start]), start, end


def _standard(values: Array) -> Array:
    middle, high = np.quantile(values, [0.5, 0.9])
    return np.asarray((values - middle) / max(high - middle, 1e-9))


def inspect_data(
    table: TokenTable,
    *,
    most: int = MOST_ROWS,
    prompts: Mapping[str, str] | None = None,
    planted: Mapping[str, TokenTable] | None = None,
) -> Finding:
    """Return the most suspicious rows of a table and, where noise was planted on purpose, how well it was found.

    Args:
        table: the user's data.
        most: rows in the Finding; `records` gives all.
        prompts: id of the row -> what came before the answer.
        planted: kind of noise -> token table of the same data with such noise planted.
    """
    found = suspects(table)
    scores = np.array([s.score for s in found])
    return Finding(
        kind="inspect-data",
        title="Rows and passages that do not belong",
        n=len(found),
        numbers={
            "rows": [record(table, s, place, prompts) for place, s in enumerate(found[:most], 1)],
            "of_rows": len(found),
            "score_quantiles": {name: float(np.quantile(scores, q)) for name, q in QUANTILES.items()},
            "planted": {"kinds": [recovery(kind, noisy) for kind, noisy in planted.items()]} if planted else None,
        },
        protocol={
            "unit": "rows",
            "passage": f"stretch with the largest sum of nll + H (nats) above the tokens' P{100 * LEVEL:.0f}",
            "token": "largest nll - H (nats)",
            "score": "the larger of the two, in distances of the median row from the row at P90",
            "planted": "precision and recall among as many rows as were planted; spans in tokens",
        },
        provenance=provenance_of({"data": table, **(planted or {})}),
    )


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def record(table: TokenTable, suspect: Suspect, place: int, prompts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what there is to say of one row, as README.md lays it out."""
    a, b = suspect.first, suspect.last
    first, last = suspect.span
    bits, nll = table.entropy_bits.astype(np.float64), table.nll.astype(np.float64)
    token = suspect.token
    return {
        "place": place,
        "id": table.row_ids[suspect.row],
        "score": suspect.score,
        "reason": REASONS[suspect.reason],
        "tokens": b - a,
        "mean_nll": float(nll[a:b].mean()),
        "mean_entropy_bits": float(bits[a:b].mean()),
        "sure_and_wrong": float(((bits[a:b] < 1) & (table.p[a:b] < 0.1)).mean()),
        "prompt": (prompts or {}).get(table.row_ids[suspect.row]),
        "text": table.row_text(a, b),
        "span": {
            **_place(table, first, last),
            "tokens": last - first,
            "mean_nll": float(nll[first:last].mean()),
            "mean_entropy_bits": float(bits[first:last].mean()),
            "score": suspect.passage,
        },
        "worst_token": {
            **_place(table, token, token + 1),
            "p": float(table.p[token]),
            "rank": int(table.rank[token]),
            "expected_rank": float(table.expected_rank[token]),
            "entropy_bits": float(bits[token]),
        },
    }


def _place(table: TokenTable, first: int, last: int) -> dict[str, Any]:
    return {"start": int(table.start[first]), "end": int(table.end[last - 1]), "text": table.row_text(first, last)}


def recovery(kind: str, table: TokenTable) -> dict[str, Any]:
    """Return how well planted noise is found: precision and recall among as many rows as were planted."""
    noise, found = planted_tokens(table), suspects(table)
    bad = np.array([noise[s.first : s.last].any() for s in found])
    count = int(bad.sum())
    need(count, 1, "rows in which the planted text survived", kind)
    shown = np.zeros(len(table), dtype=bool)
    for suspect in found[:count]:
        first, last = suspect.span if suspect.reason == "passage" else (suspect.token, suspect.token + 1)
        shown[first:last] = True
    hits = int(bad[:count].sum())
    # `found` is sorted: the area under the ROC curve is the share of (bad, good) pairs in the right order.
    pairs = count * (len(bad) - count)
    return {
        "kind": kind,
        "rows": len(bad),
        "planted": count,
        "row_precision": hits / count,
        "row_recall": hits / count,
        "span_precision": float((noise & shown).sum() / shown.sum()),
        "span_recall": float((noise & shown).sum() / noise.sum()),
        "auc": float((np.cumsum(~bad[::-1])[bad[::-1]]).sum() / pairs) if pairs else None,
    }


def records(table: TokenTable, prompts: Mapping[str, str] | None = None) -> Sequence[dict[str, Any]]:
    """Return every row's record flat, for a CSV file, the most suspicious first."""
    flat = []
    for place, suspect in enumerate(suspects(table), 1):
        one = record(table, suspect, place, prompts)
        nested = {f"{part}_{key}": value for part in ("span", "worst_token") for key, value in one[part].items()}
        flat.append({key: value for key, value in one.items() if key not in ("span", "worst_token")} | nested)
    return flat
