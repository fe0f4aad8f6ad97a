"""Weights of one token from its four signals, typed in by hand: no model, no logits."""

from __future__ import annotations

import math

import torch

from ranktuner.errors import InputError, UnsupportedError
from ranktuner.registry import method, names
from ranktuner.signals import Needs, Signals

LARGEST = 2**32
"""Tokens that no vocabulary has."""
_WORDS = {"topk": "top-k entropy", "sum_p2": "sum of p^2", "mass_above": "mass above the label"}


def signals_by_hand(p: float, entropy_bits: float, rank: int, p_max: float) -> Signals:
    """Return the Signals of one token, in float64.

    Args:
        p: probability of the label.
        entropy_bits: entropy of the distribution, bits.
        rank: how many tokens are at least as likely.
        p_max: probability of the most likely token.
    """
    check_token(p=p, entropy_bits=entropy_bits, rank=rank, p_max=p_max)
    number = [torch.tensor([x], dtype=torch.float64) for x in (-math.log(p), entropy_bits, p_max)]
    return Signals(
        nll=number[0],
        rank=torch.tensor([rank]),
        is_top=torch.tensor([p >= p_max * (1 - 1e-9)]),  # also at a tie, where the rank is above 1
        entropy_bits=number[1],
        p_max=number[2],
        seq=torch.tensor([0]),
        vocab_size=max(rank, 2),
    )


def check_token(*, p: float, entropy_bits: float, rank: int, p_max: float) -> None:
    """Refuse signals that no distribution has, naming the one that does not fit."""
    if not 0 < p <= 1:
        raise InputError(f"p is {p:g}; a probability above 0 and at most 1 was expected")
    if not p <= p_max <= 1:
        raise InputError(f"p_max is {p_max:g} with p = {p:g}; the largest probability lies between p and 1")
    if rank < 1:
        raise InputError(f"rank is {rank}; 1 (the top) or more was expected: the label counts itself")
    if rank >= LARGEST:
        raise InputError(f"rank is {rank}; no vocabulary has so many tokens: a number below {LARGEST} was expected")
    if rank > 1 / p * (1 + 1e-9):
        raise InputError(
            f"rank is {rank} with p = {p:g}; at most 1/p = {1 / p:g} tokens can be at least as likely as the label"
        )
    if rank == 1 and p < p_max * (1 - 1e-9):
        raise InputError(f"rank is 1 with p = {p:g} below p_max = {p_max:g}; a token below the top has rank 2 or more")
    most = math.log2(LARGEST)
    if not 0 <= entropy_bits <= most:
        raise InputError(
            f"entropy is {entropy_bits:g}; a number of bits from 0 to {most:g} was expected: it is at most log2 of the "
            "vocabulary's size"
        )
    if entropy_bits < -math.log2(p_max) - 1e-9:
        raise InputError(
            f"entropy is {entropy_bits:g} bits with p_max = {p_max:g}; it is at least -log2(p_max) = "
            f"{-math.log2(p_max):.4g} (are these nats? 1 nat is 1.4427 bits)"
        )


def weigh_token(
    p: float, entropy_bits: float, rank: int, p_max: float, specs: list[str] | None = None
) -> list[tuple[str, float | None, str]]:
    """Return (method, weight, note) for each method; no weight, and a note why, where it reads more than is given."""
    signals = signals_by_hand(p, entropy_bits, rank, p_max)
    chosen = specs or [s for name in names() for s in _both_priors(name)]
    return [_weigh(s, signals, asked=specs is not None) for s in chosen]


def _both_priors(name: str) -> list[str]:
    return [name, f"{name}(prior=prob)"] if name in ("ranktuner", "relative-rank") else [name]


def _weigh(spec: str, signals: Signals, asked: bool) -> tuple[str, float | None, str]:
    try:
        chosen = method(spec)
    except InputError as error:
        if asked:
            raise
        return spec, None, str(error)  # another package's method, which must not take ours from the list
    needs = Needs.parse(chosen.needs)
    absent = [word for field, word in _WORDS.items() if getattr(needs, field)]
    if absent:
        return str(chosen), None, f"needs {', '.join(absent)}"
    if chosen.scope == "batch" or (chosen.context is not None and not chosen.context.ready):
        return (
            str(chosen),
            None,
            "needs other tokens" + "; talr(tau=2) gives its tau" * (chosen.name == "talr"),
        )
    try:
        terms = chosen.terms(signals)
    except UnsupportedError:
        return str(chosen), None, "needs the whole distribution"
    note = "" if terms.w_entropy is None else f"and {float(terms.w_entropy[0]):.4g} times the entropy in nats"
    return str(chosen), float(terms.w_nll[0]), note
