"""One table of methods for every test that must hold for all of them: the spec, and the oracle's name and options."""

from __future__ import annotations

import itertools
import math

import oracle
from mpmath import mp, mpf

Options = dict[str, object]

LN_WEIGHT_MAX = 64.0
"""The stated ceiling: weights saturate at e^64, so that nothing overflows in float32 at nll 1e4."""

_PRIORS = ("uniform", "prob")

PLAIN: dict[str, tuple[str, Options]] = {
    "sft": ("sft", {}),
    "dft": ("dft", {}),
    "eaft": ("eaft", {}),
    "eaft(alpha=2)": ("eaft", {"alpha": 2}),
    "eaft(k=5)": ("eaft", {"k": 5}),
    "talr(tau=1.7)": ("talr", {"tau": 1.7}),
    "talr(floor=0.2, tau=0.5)": ("talr", {"tau": 0.5, "floor": 0.2}),
    "overtone": ("overtone", {}),
    "overtone(lam=0.35)": ("overtone", {"lam": 0.35}),
    "alpha-power": ("alpha-power", {}),
    "alpha-power(alpha=1)": ("alpha-power", {"alpha": 1}),
    "entropy-reg": ("entropy-reg", {}),
    "threshold": ("threshold", {}),
    "threshold(at=0.3, keep=below)": ("threshold", {"at": 0.3, "keep": "below"}),
    "threshold(weighted=true)": ("threshold", {"weighted": True}),
    "threshold(keep=below, weighted=true)": ("threshold", {"keep": "below", "weighted": True}),
    "profit": ("profit", {}),
    "profit(tau=0.4)": ("profit", {"tau": 0.4}),
    "chord": ("chord", {}),
    "deft": ("deft", {}),
    "focal": ("focal", {}),
    "focal(gamma=1)": ("focal", {"gamma": 1}),
    "mile": ("mile", {}),
    "mile(gamma=2.5)": ("mile", {"gamma": 2.5}),
}

RANKTUNER: dict[str, tuple[str, Options]] = {
    f"ranktuner(prior={prior}, xi={xi}, k={k}, drop={drop})": (
        "ranktuner",
        {"prior": prior, "xi_kind": xi, "k": k, "drop": drop},
    )
    for prior, xi, k, drop in itertools.product(
        _PRIORS,
        ("max", "arithmetic", "geometric", "logarithmic"),
        ("dynamic", "exact", 0.5),
        ("none", "probability", "entropy"),
    )
}
RELATIVE_RANK: dict[str, tuple[str, Options]] = {
    f"relative-rank(f={f}, g={g}, prior={prior})": ("relative-rank", {"f": f, "g": g, "prior": prior})
    for f, g, prior in itertools.product(oracle.F, oracle.LOG_G, _PRIORS)
}
CAPPED: dict[str, tuple[str, Options]] = {
    "ranktuner(cap=1.5)": ("ranktuner", {"cap": 1.5}),
    "relative-rank(cap=0.9)": ("relative-rank", {"cap": 0.9}),
}
USUAL: dict[str, tuple[str, Options]] = {
    "ranktuner": ("ranktuner", {}),
    "ranktuner(prior=prob)": ("ranktuner", {"prior": "prob"}),
    "ranktuner(prior=prob, k=0.5)": ("ranktuner", {"prior": "prob", "k": 0.5}),
    "relative-rank": ("relative-rank", {}),
}
TABLE = PLAIN | USUAL | RANKTUNER | RELATIVE_RANK | CAPPED

SHORT = [*PLAIN, *USUAL, *CAPPED]
"""The methods with their main parameters only, for tests that do not turn on every combination."""


def topk_of(options: Options, vocab_size: int) -> int:
    """How many of the largest logits eaft reads."""
    return min(int(options.get("k", 20)), vocab_size)  # type: ignore[call-overload]


def log_weight(spec: str, t: oracle.Token) -> mpf:
    """What the oracle says the logarithm of the weight is, below the ceiling; -inf for a weight of zero."""
    name, options = TABLE[spec]
    return min(oracle.log_weight(name, t, **options), mpf(LN_WEIGHT_MAX))


def unsure(spec: str, t: oracle.Token) -> bool:
    """Whether a rounding decides: the label's probability is within one of a threshold."""
    name, options = TABLE[spec]
    border = {"threshold": options.get("at", 0.1), "profit": options.get("tau", 0.1)}.get(name)
    return border is not None and abs(t.p - float(border)) < 1e-6  # type: ignore[arg-type]


def agrees(got: float, spec: str, t: oracle.Token, tolerance: float) -> bool:
    """Whether a weight is right: an exponential of sums of nll keeps nll roundings, and below 1e-37 all are zero."""
    if not math.isfinite(got) or got < 0:
        return False
    want = mp.exp(log_weight(spec, t))
    return bool(abs(got - want) <= tolerance * max(1, t.nll) * max(want, mpf("1e-2")) or max(got, want) < 1e-37)
