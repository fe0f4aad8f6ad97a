"""Suspects: rows and passages of training data that do not belong where they stand, the most suspicious first.

Different trouble leaves different traces, and each is looked for by itself:

* a **passage** the rest does not lead to (inserted text, another row's answer): for many tokens in a row the model
  neither expected the label nor knows what comes next, so nll + H is high. Its trace is the stretch with the largest
  sum of nll + H above the level that four fifths of all tokens stay under.
* an **ending** that does not follow (a wrong result or label): the mean nll of a row's last six tokens, to be compared
  with the endings of the other rows. Single surprising tokens elsewhere are no trace: good text is full of them.

Each is put on the scale of the majority: how many times the distance from the median row to the row at P90 it lies
above the median. A row's score is the larger of the two, or the one that the rows are ordered by.
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
from ranktuner.errors import InputError
from ranktuner.findings import Finding

Array = NDArray[Any]

LEAST_ROWS = 20
LEVEL = 0.8
CAP = 0.98
"""No single token of a passage counts for more than this quantile: a passage is many tokens."""
MOST_ROWS = 50
ENDING = 6
"""Tokens of an ending, the end token among them."""
REASONS = {"passage": "a passage the rest of the row does not lead to", "ending": "an ending that does not follow"}
TRACES = tuple(REASONS)


@dataclass(frozen=True)
class Suspect:
    """One row with its traces."""

    row: int
    """Its number in the table."""
    first: int
    last: int
    """Its tokens, as indices into the table."""
    traces: Mapping[str, float]
    """Trace -> how far it stands out."""
    reason: str
    """The trace it is judged by: the one asked for, or the larger."""
    passage: tuple[int, int]
    """Tokens of the stretch with the largest sum."""
    worst: int
    """The token with the largest nll - H: the model was sure of something else."""

    @property
    def score(self) -> float:
        """How far the row stands out."""
        return self.traces[self.reason]

    @property
    def span(self) -> tuple[int, int]:
        """The tokens that stand out: the passage or the ending."""
        return self.passage if self.reason == "passage" else (max(self.first, self.last - ENDING), self.last)


def check_order(by: str) -> None:
    """Refuse an order that is none."""
    if by != "score" and by not in TRACES:
        raise InputError(f"order by {by!r}: expected score, {' or '.join(TRACES)}")


def suspects(table: TokenTable, by: str = "score") -> list[Suspect]:
    """Return every row of a table with its traces, the most suspicious first (equal ones in the table's order).

    Args:
        table: a token table.
        by: `score`, or one of `TRACES`.
    """
    check_order(by)
    rows = table.bounds_of_rows()
    need(len(rows), LEAST_ROWS, "rows")
    nll, nats = table.nll.astype(np.float64), table.entropy_bits.astype(np.float64) * LN2
    foreign = np.minimum(nll + nats, np.quantile(nll + nats, CAP)) - np.quantile(nll + nats, LEVEL)
    heavy = [_heaviest(foreign[a:b]) for _, a, b in rows]
    passage = _standard(np.array([h[0] for h in heavy]))
    ending = _standard(np.array([nll[max(a, b - ENDING) : b].mean() for _, a, b in rows]))
    found = []
    for i, (number, a, b) in enumerate(rows):
        traces = {"passage": float(passage[i]), "ending": float(ending[i])}
        reason = max(TRACES, key=traces.__getitem__) if by == "score" else by
        _, start, end = heavy[i]
        worst = a + int(np.argmax(nll[a:b] - nats[a:b]))
        found.append(Suspect(number, a, b, traces, reason, (a + start, a + end), worst))
    return sorted(found, key=lambda suspect: -suspect.score)


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
    by: str = "score",
    most: int = MOST_ROWS,
    prompts: Mapping[str, str] | None = None,
    planted: Mapping[str, TokenTable] | None = None,
) -> Finding:
    """Return the most suspicious rows of a table and, where noise was planted on purpose, how well it was found.

    Args:
        table: the user's data.
        by: the order, see `suspects`.
        most: rows in the Finding; `records` gives all.
        prompts: id of the row -> what came before the answer.
        planted: kind of noise -> token table of the same data with such noise planted.
    """
    found = suspects(table, by)
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
            "ending": f"mean nll of the last {ENDING} tokens",
            "score": "the larger trace (or the one ordered by), in distances of the median row from the row at P90",
            "span": "what stands out: the passage, or the ending",
            "order": by,
            "planted": "precision and recall among as many rows as were planted, by score; spans in tokens",
        },
        provenance=provenance_of({"data": table, **(planted or {})}),
    )


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def record(table: TokenTable, suspect: Suspect, place: int, prompts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what there is to say of one row, as README.md lays it out."""
    a, b = suspect.first, suspect.last
    first, last = suspect.span
    bits, nll = table.entropy_bits.astype(np.float64), table.nll.astype(np.float64)
    token = suspect.worst
    return {
        "place": place,
        "id": table.row_ids[suspect.row],
        "score": suspect.score,
        "reason": REASONS[suspect.reason],
        "traces": dict(suspect.traces),
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

    def order(by: str) -> Array:
        return np.array([bool(noise[s.first : s.last].any()) for s in suspects(table, by)])

    bad = order("score")
    count = int(bad.sum())
    need(count, 1, "rows in which the planted text survived", kind)
    shown = np.zeros(len(table), dtype=bool)
    for suspect in found[:count]:
        shown[slice(*suspect.span)] = True
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
        "by_trace": {trace: float(order(trace)[:count].mean()) for trace in TRACES},
        "auc": float((np.cumsum(~bad[::-1])[bad[::-1]]).sum() / pairs) if pairs else None,
    }


def records(table: TokenTable, prompts: Mapping[str, str] | None = None, by: str = "score") -> Sequence[dict[str, Any]]:
    """Return every row's record flat, for a CSV file, the most suspicious first."""
    flat = []
    for place, suspect in enumerate(suspects(table, by), 1):
        one = record(table, suspect, place, prompts)
        nested = {
            f"{part}_{key}": value for part in ("traces", "span", "worst_token") for key, value in one[part].items()
        }
        flat.append({key: value for key, value in one.items() if key not in ("traces", "span", "worst_token")} | nested)
    return flat
