"""Small numbers that several diagnostics share: summaries, histograms, top shares with ties, bootstrap over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktuner.diagnostics.table import WEIGHT, TokenTable
from ranktuner.errors import DataError
from ranktuner.findings import provenance

Array = NDArray[Any]

LEVEL = 0.95
"""Of every interval."""

DRAWS = 400
"""Bootstrap draws: the ends of a 95 % interval are then good to about a tenth of its width."""


def need(found: int, least: int, what: str, where: str = "the data") -> None:
    """Raise a DataError when there are fewer than `least` of something: numbers on less would mean nothing."""
    if found < least:
        raise DataError(f"{where}: {found} {what}, at least {least} are needed for this diagnostic: give more data")


def summary(values: Sequence[float], low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return mean, interval and the single values, as README.md lays them out."""
    return {"mean": float(np.mean(values)), "low": low, "high": high, "values": [float(v) for v in values]}


def describe(values: Array) -> dict[str, float]:
    """Return mean, median, standard deviation (of the population), P80, P90, smallest and largest value."""
    values = values.astype(np.float64)
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "std": float(values.std()),
        "p80": float(np.quantile(values, 0.8)),
        "p90": float(np.quantile(values, 0.9)),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def rounded(values: Iterable[float]) -> list[float]:
    """Return the values to five significant digits: more than any page shows, in half the bytes."""
    return [float(f"{value:.5g}") for value in values]


def histogram(values: Array, edges: Array) -> dict[str, list[Any]]:
    """Return edges and counts; values beyond the edges are counted in the outermost bins, so that none is lost."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def grid(x: Array, y: Array, x_edges: Array, y_edges: Array, mass: Array | None = None) -> Array:
    """Return the mass (default: the number) of points in each cell, `[x bin, y bin]`; outliers go to the outer bins."""
    inside_x, inside_y = np.clip(x, x_edges[0], x_edges[-1]), np.clip(y, y_edges[0], y_edges[-1])
    return np.asarray(np.histogram2d(inside_x, inside_y, bins=(x_edges, y_edges), weights=mass)[0])


class TopShare:
    """The items with the largest scores, as a share of all, with every tie at the border taken in proportion.

    A score that is equal everywhere then finds exactly its share: no order of the data can help it. Order and ties are
    worked out once, so that a bootstrap over many multiplicities costs one cumulative sum each.
    """

    def __init__(self, score: Array, positive: Array) -> None:
        order = np.argsort(-score, kind="stable")
        self._starts = np.flatnonzero(np.diff(score[order], prepend=np.nan) != 0)
        self._order, self._positive = order, positive[order].astype(np.float64)

    def hits(self, share: float, times: Array | None = None) -> tuple[float, float, float]:
        """Return (positives selected, items selected, positives in all); `times` counts each item that often."""
        ones = np.ones(len(self._order)) if times is None else times[self._order].astype(np.float64)
        size = np.add.reduceat(ones, self._starts)
        good = np.add.reduceat(ones * self._positive, self._starts)
        limit = float(np.round(share * size.sum()))
        taken = np.clip(limit - (np.cumsum(size) - size), 0.0, size)
        part = np.divide(taken, size, out=np.zeros_like(size), where=size > 0)
        return float((good * part).sum()), limit, float(good.sum())


def bootstrap(
    strata: Sequence[Array], statistic: Callable[[list[Array]], float], seed: int, draws: int = DRAWS
) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic over rows drawn again with replacement.

    Args:
        strata: for each table, a label of each of its rows; rows are drawn within their label, so that the design
            (how many are corrupted) stays. Tokens of one row are not independent: rows are what is drawn.
        statistic: multiplicities of the rows, one array a table -> value; NaN where a draw has none.
        seed: of the draws.
        draws: how many.
    """
    rng = np.random.default_rng(seed)
    members = [[np.flatnonzero(labels == label) for label in np.unique(labels)] for labels in strata]
    found = np.empty(draws)
    for draw in range(draws):
        times = [np.zeros(len(labels), dtype=np.int64) for labels in strata]
        for counts, groups in zip(times, members, strict=True):
            for group in groups:
                counts[group] = rng.multinomial(len(group), np.full(len(group), 1 / len(group)))
        found[draw] = statistic(times)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def weights_of(table: TokenTable, method: str) -> Array:
    """Return the weights that a method gives to a table's tokens: the stored column, or worked out from the signals.

    Args:
        table: a token table.
        method: a method's spec.

    Returns:
        [N], float64.
    """
    if method in table.weights:
        return table.weights[method].astype(np.float64)
    import torch

    from ranktuner.registry import method as method_of
    from ranktuner.signals import Signals

    made = method_of(method)
    # The gradient of H is no number to keep: weights are the same without it.
    if absent := sorted(made.needs - {"entropy_grad"}):
        raise DataError(
            f"method {method!r} reads {', '.join(absent)}, which a token table does not keep, and the table has "
            f"no column {WEIGHT + method!r}: make the table with --method '{method}'"
        )
    signals = Signals(
        nll=torch.from_numpy(table.nll.copy()),
        rank=torch.from_numpy(table.rank.astype(np.int64)),
        is_top=torch.from_numpy(table.is_top.copy()),
        entropy_bits=torch.from_numpy(table.entropy_bits.copy()),
        p_max=torch.from_numpy(table.p_max.copy()),
        seq=torch.from_numpy(table.row.astype(np.int64)),
        vocab_size=int(table.meta.get("vocab_size", 0)),
    )
    if made.context is not None:
        # State over optimiser steps: the table itself is the step before.
        made.context.prime(signals.nll, signals.seq)
    return made.weights(signals).double().numpy()


def provenance_of(tables: Mapping[str, TokenTable], **facts: Any) -> dict[str, Any]:
    """Return a Finding's provenance with the tables it rests on."""
    keys = ("model", "model_fingerprint", "data", "data_fingerprint", "dtype", "max_length")
    listed = [
        {"name": name, **{key: table.meta.get(key) for key in keys}, "tokens": len(table)}
        for name, table in tables.items()
    ]
    return provenance(tables=listed, **facts)
