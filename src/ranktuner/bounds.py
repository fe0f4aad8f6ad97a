"""The mathematics of the paper on tensors: rank bounds, xi, elasticity K, the scale in log space, the indicator.

Legend: R rank of the label, E[R] its expectation under the model, p probability of the label, H entropy in bits,
s(H) lower bound of E[R], xi a value between R and s, K elasticity, S = (p s)^-K the scale, I the indicator.
All functions are elementwise; shapes are [N] throughout.

What holds for every distribution: R <= 1/p, E[R] >= s(H), surrogate indicator (default f, g) <= exact indicator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ranktuner.errors import InputError, nearest

LN2 = math.log(2.0)
HIGH_ENTROPY_BITS = 2.0
"""Where the bound changes its form; also the border of the entropy regimes."""

XiKind = Literal["max", "arithmetic", "geometric", "logarithmic"]
ElasticityKind = Literal["dynamic", "exact"]
Drop = Literal["none", "probability", "entropy"]


# --- lower bounds of the expected rank -------------------------------------------------------------------------


def rank_bound(entropy_bits: Tensor, p_max: Tensor) -> Tensor:
    """Lower bound of the expected rank: s(H) = 2^H/4 + 1 if H >= 2 bits, else 2 - p_max."""
    return torch.where(entropy_bits >= HIGH_ENTROPY_BITS, torch.exp2(entropy_bits) / 4 + 1, 2 - p_max)


def rank_bound_from_entropy(entropy_bits: Tensor, vocab_size: int) -> Tensor:
    """The entropy-only variant of `rank_bound`: below 2 bits, 2 - h^-1(H) stands in for 2 - p_max.

    Fano's inequality gives H <= h(p_max), and h falls, so p_max <= h^-1(H): this bound is the weaker one.
    """
    low = 2 - fano_inverse(entropy_bits, vocab_size).to(entropy_bits.dtype)
    return torch.where(entropy_bits >= HIGH_ENTROPY_BITS, torch.exp2(entropy_bits) / 4 + 1, low)


def fano_inverse(entropy_bits: Tensor, vocab_size: int) -> Tensor:
    """Return q in [1/V, 1] with h(q) = H, where h(q) = Hb(q) + (1-q) log2(V-1), in float64.

    h falls from log2 V at q = 1/V to 0 at q = 1. Bisection runs on e = 1-q, which stays accurate near q = 1;
    entropies beyond log2 V (rounding) give q = 1/V.
    """
    if vocab_size < 2:
        raise InputError(f"vocab_size is {vocab_size}; a distribution over at least 2 tokens is needed")
    target = entropy_bits.to(torch.float64)
    low, high = torch.zeros_like(target), torch.full_like(target, 1 - 1 / vocab_size)
    for _ in range(60):
        middle = (low + high) / 2
        below = _fano(middle, vocab_size) < target
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 1 - (low + high) / 2


def _fano(error: Tensor, vocab_size: int) -> Tensor:
    """h as a function of e = 1-q."""
    binary = -(torch.xlogy(error, error) + torch.special.xlog1py(1 - error, -error)) / LN2
    fano: Tensor = binary + error * math.log2(vocab_size - 1)
    return fano


# --- xi and K ---------------------------------------------------------------------------------------------------


def xi(rank: Tensor, bound: Tensor, kind: str = "max") -> Tensor:
    """Return the value between the rank and the bound at which the elasticity is taken.

    Args:
        rank: R, any dtype; taken to the bound's.
        bound: s(H).
        kind: `max`, `arithmetic`, `geometric` or `logarithmic` mean (R-s)/(ln R - ln s); the last is the
            arithmetic one where R and s are so close that the quotient would be rounding noise.
    """
    rank = rank.to(bound.dtype)
    if kind == "max":
        return torch.maximum(rank, bound)
    if kind == "arithmetic":
        return (rank + bound) / 2
    if kind == "geometric":
        return torch.sqrt(rank * bound)
    if kind == "logarithmic":
        # s expm1(x)/x with x = ln(R/s): no difference of two nearly equal numbers
        x = torch.log(rank) - torch.log(bound)
        close = x.abs() < 1e-6
        return torch.where(close, (rank + bound) / 2, bound * torch.expm1(x) / torch.where(close, 1.0, x))
    raise InputError(f"unknown xi {kind!r}; {nearest(kind, ('max', 'arithmetic', 'geometric', 'logarithmic'))}")


def elasticity(xi: Tensor, kind: str | float = "dynamic") -> Tensor:
    """Return K(xi): `dynamic` log2(xi+1)^-2, `exact` the same times xi/(xi+1), or the given constant."""
    if isinstance(kind, int | float):
        return torch.full_like(xi, float(kind))
    k = torch.log2(xi + 1) ** -2
    if kind == "dynamic":
        return k
    if kind == "exact":
        return k * xi / (xi + 1)
    raise InputError(f"unknown elasticity {kind!r}; give a number, or {nearest(kind, ('dynamic', 'exact'))}")


def log_scale(nll: Tensor, bound: Tensor, k: Tensor, drop: str = "none") -> Tensor:
    """Return ln S = K (nll - ln s), the logarithm of the scale (p s)^-K.

    In log space because (p s)^-K is 0 times infinity at nll 105 in fp32.

    Args:
        nll: -ln p, nats.
        bound: s(H).
        k: elasticity.
        drop: an ablation: `probability` leaves -K ln s, `entropy` leaves K nll.
    """
    if drop == "none":
        return k * (nll - torch.log(bound))
    if drop == "probability":
        return -k * torch.log(bound)
    if drop == "entropy":
        return k * nll
    raise InputError(f"unknown ingredient to drop {drop!r}; {nearest(drop, ('none', 'probability', 'entropy'))}")


# --- the indicator ----------------------------------------------------------------------------------------------

# f as a function of u = ln(1+x), so that x = 1/p needs no overflow: u = softplus(nll)
F: dict[str, Callable[[Tensor], Tensor]] = {
    "inv-log": lambda u: LN2 / u,  # 1/log2(1+x)
    "neg-log": lambda u: -u / LN2,  # -log2(1+x)
    "inv-sqrt": lambda u: torch.exp(-u / 2),  # (1+x)^-1/2
    "inv": lambda u: torch.exp(-u),  # 1/(1+x)
}
# ln g, so that quotients of indicators stay in log space
LN_G: dict[str, Callable[[Tensor], Tensor]] = {
    "exp2": lambda x: x * LN2,  # 2^x
    "exp-half": lambda x: x / 2,  # e^(x/2)
    "exp-double": lambda x: x * 2,  # e^(2x)
}
FKind = Literal["inv-log", "neg-log", "inv-sqrt", "inv"]
GKind = Literal["exp2", "exp-half", "exp-double"]


def indicator(rank: Tensor, expected_rank: Tensor, f: str = "inv-log", g: str = "exp2") -> Tensor:
    """The exact indicator I = g(f(R) - f(E[R])), from true ranks; 1 where R = E[R], below 1 where R is larger."""
    rank = rank.to(expected_rank.dtype)
    return torch.exp(_log_indicator(torch.log1p(rank), torch.log1p(expected_rank), f, g))


def surrogate_indicator(nll: Tensor, bound: Tensor, f: str = "inv-log", g: str = "exp2") -> Tensor:
    """The surrogate indicator: `indicator` at 1/p and s(H), computed from nll."""
    return torch.exp(log_surrogate_indicator(nll, bound, f, g))


def log_surrogate_indicator(nll: Tensor, bound: Tensor, f: str = "inv-log", g: str = "exp2") -> Tensor:
    """ln of the surrogate indicator; finite for every finite nll."""
    # ln(1 + e^nll) for nll >= 0; torch's softplus switches to the identity at 20 and loses 2e-9 there
    u = nll + torch.log1p(torch.exp(-nll))
    return _log_indicator(u, torch.log1p(bound), f, g)


def _log_indicator(u: Tensor, v: Tensor, f: str, g: str) -> Tensor:
    if f not in F:
        raise InputError(f"unknown f {f!r}; {nearest(f, F)}")
    if g not in LN_G:
        raise InputError(f"unknown g {g!r}; {nearest(g, LN_G)}")
    return LN_G[g](F[f](u) - F[f](v))
