"""pass@k in closed form: the chance that at least one of k samples is correct, over all choices of k of the n.

One problem with c correct among n samples has C(n, k) choices, of which C(n, k) - C(n-c, k) hold a correct one.
The paper pools the choices of all problems before dividing, so a problem with more samples weighs more; only when every
problem has the same n is that the mean of the usual `1 - C(n-c, k) / C(n, k)`. The counting is exact: integers until
the last division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, sqrt
from typing import Any

from ranktuner.errors import InputError

BOOTSTRAP_DRAWS = 2000
"""Resamples for an interval: the ends of a 95 % interval then move by about 2 % of its width between seeds."""


def subsets(n: int, c: int, k: int, name: str | None = None) -> tuple[int, int]:
    """Return (choices of k among n that hold a correct one, all choices); the integers under every formula here.

    Args:
        n: finished samples of the problem.
        c: how many of them are correct.
        k: how many are drawn; more than n is an error that names the problem.
        name: the problem, for messages.
    """
    where = f"problem {name!r}" if name is not None else "a problem"
    if k < 1:
        raise InputError(f"k = {k}: pass@k needs k of at least 1")
    if not 0 <= c <= n:
        raise InputError(f"{where} has {c} correct of {n} samples: expected 0 <= correct <= samples")
    if k > n:
        raise InputError(
            f"{where} has {n} finished samples, so pass@{k} cannot be measured: generate at least {k} samples, "
            f"or ask for k up to {n}"
        )
    return comb(n, k) - comb(n - c, k), comb(n, k)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that k samples drawn from n, of which c are correct, hold a correct one.

    `1 - C(n-c, k) / C(n, k)`, exact until the result is made a float.
    """
    return float(Fraction(*subsets(n, c, k)))


def pooled_pass_at_k(counts: Sequence[tuple[int, int]], k: int, names: Sequence[str] | None = None) -> float:
    """Return the paper's pass@k over problems: all choices of k that hold a correct sample, over all choices of k.

    `sum_i [C(n_i, k) - C(n_i - c_i, k)] / sum_i C(n_i, k)`

    Args:
        counts: (samples, correct) of each problem.
        k: how many are drawn; a problem with fewer samples is an error.
        names: the problems' ids in the same order, for messages; default their row numbers.
    """
    return float(pooled_fraction(counts, k, names))


def pooled_fraction(counts: Sequence[tuple[int, int]], k: int, names: Sequence[str] | None = None) -> Fraction:
    """Return `pooled_pass_at_k` as an exact fraction."""
    pairs = _pairs(counts, k, names)
    return Fraction(sum(hit for hit, _ in pairs), sum(every for _, every in pairs))


@dataclass(frozen=True)
class Uncertainty:
    """How far a pooled pass@k could move if other problems of the same kind had been asked."""

    standard_error: float | None
    """None for a single problem."""
    low: float
    high: float
    """Ends of the percentile bootstrap interval over problems."""


def uncertainty(
    counts: Sequence[tuple[int, int]], k: int, *, level: float = 0.95, seed: int = 0, names: Sequence[str] | None = None
) -> Uncertainty:
    """Return the standard error and the bootstrap interval of the pooled pass@k, over problems.

    The pooled figure is a ratio theta of sums, so with hits a_i and choices b_i of M problems its standard error is
    `sqrt(M/(M-1) sum (a_i - theta b_i)^2) / sum b_i`: the usual `s / sqrt(M)` when all have the same number of samples.
    The interval resamples whole problems with their samples, `BOOTSTRAP_DRAWS` times, by a seeded generator.
    """
    import numpy as np

    a, b = _parts(counts, k, names)
    theta, m = a.sum() / b.sum(), len(a)
    draws = _draws(m, seed)
    low, high = np.quantile(a[draws].sum(1) / b[draws].sum(1), [(1 - level) / 2, (1 + level) / 2])
    return Uncertainty(_error((a - theta * b) / b.sum()), float(low), float(high))


@dataclass(frozen=True)
class Difference:
    """One pooled pass@k less another over the same problems, and how far it could move with other problems."""

    value: float
    standard_error: float | None
    """None for a single problem."""
    low: float
    high: float
    """Ends of the percentile bootstrap interval over problems, each drawn for both at once."""


def paired_difference(
    counts: Sequence[tuple[int, int]],
    others: Sequence[tuple[int, int]],
    k: int,
    *,
    level: float = 0.95,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Difference:
    """Return the pooled pass@k of `counts` less that of `others`, paired over problems.

    A hard problem is hard for both, so what they share drops out of the error: it is `sqrt(M/(M-1) sum r_i^2)` over the
    differences r_i of the two ratios' terms, and a resample takes both sides of a problem together.

    Args:
        counts: (samples, correct) of each problem.
        others: the same for the other model, in the same order of problems.
        k: how many are drawn.
        level: of the interval.
        seed: of the resampling.
        names: the problems' ids, for messages.
    """
    import numpy as np

    if len(counts) != len(others):
        raise InputError(
            f"a paired difference over {len(counts)} and {len(others)} problems: expected the same on each side"
        )
    value = pooled_fraction(counts, k, names) - pooled_fraction(others, k, names)
    (a, b), (c, d) = _parts(counts, k, names), _parts(others, k, names)
    terms = (a - a.sum() / b.sum() * b) / b.sum() - (c - c.sum() / d.sum() * d) / d.sum()
    draws = _draws(len(a), seed)
    drawn = a[draws].sum(1) / b[draws].sum(1) - c[draws].sum(1) / d[draws].sum(1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Difference(float(value), _error(terms), float(low), float(high))


def _parts(counts: Sequence[tuple[int, int]], k: int, names: Sequence[str] | None) -> tuple[Any, Any]:
    """Hits and choices of each problem as arrays, over the most choices: those can exceed any float, ratios cannot."""
    import numpy as np

    pairs = _pairs(counts, k, names)
    largest = max(every for _, every in pairs)
    hits = np.array([float(Fraction(hit, largest)) for hit, _ in pairs])
    return hits, np.array([float(Fraction(every, largest)) for _, every in pairs])


def _draws(m: int, seed: int) -> Any:
    """Resamples of m problems, the same for every model that was asked them."""
    import numpy as np

    return np.random.default_rng(seed).integers(m, size=(BOOTSTRAP_DRAWS, m))


def _error(terms: Any) -> float | None:
    """The standard error from each problem's part in the deviation."""
    m = len(terms)
    return sqrt(m / (m - 1) * float((terms**2).sum())) if m > 1 else None


def _pairs(counts: Sequence[tuple[int, int]], k: int, names: Sequence[str] | None) -> list[tuple[int, int]]:
    if not counts:
        raise InputError("pass@k over no problems: expected the (samples, correct) of at least one")
    labels = names if names is not None else [str(i) for i in range(len(counts))]
    return [subsets(n, c, k, name) for (n, c), name in zip(counts, labels, strict=True)]
