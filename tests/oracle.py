"""The judge: the design's formulas once more, in plain Python and mpmath, one token at a time.

Shares no code with the package and uses no tensor. Logits come in as Python floats (possibly -inf), so that a float32
or bfloat16 tensor is judged by what its rounded values mean, not by what they were before rounding.
Statistics are float64 with exact summation (`math.fsum`); whatever follows from them is mpmath with 40 digits, because
`e^nll` at nll 1e4 and the logarithmic mean of two nearly equal numbers leave float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 40

Logits = list[float]


@dataclass(frozen=True)
class Token:
    """What the model says about one label; `logits` stay at hand for the signals that only some methods read."""

    nll: float
    rank: int
    is_top: bool
    entropy_bits: float
    p_max: float
    logits: tuple[float, ...]
    label: int

    @property
    def vocab_size(self) -> int:
        return len(self.logits)

    @property
    def p(self) -> mpf:
        return mp.exp(-mpf(self.nll))


def log_probs(logits: Logits) -> Logits:
    """ln p_v; the sum without the top is kept apart, so that ln p of a nearly certain token keeps its digits."""
    top = max(logits)
    first = logits.index(top)
    rest = math.fsum(math.exp(z - top) for v, z in enumerate(logits) if v != first)
    norm = math.log1p(rest)
    return [z - top - norm for z in logits]


def token(logits: Logits, label: int) -> Token:
    logp = log_probs(logits)
    z_label = logits[label]
    assert z_label > -math.inf, "a label outside the vocabulary mask has no nll"
    nats = -math.fsum(math.exp(lp) * lp for lp in logp if lp > -745)
    return Token(
        nll=-logp[label],
        rank=sum(z >= z_label for z in logits),
        is_top=z_label == max(logits),
        entropy_bits=nats / math.log(2),
        p_max=math.exp(max(logp)),
        logits=tuple(logits),
        label=label,
    )


def topk_entropy(logits: Logits, k: int) -> float:
    """Entropy in nats of the k largest, renormalised among themselves."""
    best = sorted(logits, reverse=True)[:k]
    return -math.fsum(math.exp(lp) * lp for lp in log_probs(best) if lp > -745)


def sum_p2(logits: Logits) -> float:
    return math.fsum(math.exp(2 * lp) for lp in log_probs(logits))


def mass_above(logits: Logits, label: int) -> float:
    return math.fsum(math.exp(lp) for lp, z in zip(log_probs(logits), logits, strict=True) if z > logits[label])


def expected_rank_minus_1(logits: Logits) -> float:
    """Sum of p_v (R_v - 1): small where the top is nearly certain, and then E[R] itself would hide its digits."""
    top = max(logits)
    ordered = sorted(logits, reverse=True)
    weights = [math.exp(z - top) for z in ordered]
    terms, end = [], len(ordered)
    for position in range(len(ordered) - 1, -1, -1):
        if position + 1 < len(ordered) and ordered[position] != ordered[position + 1]:
            end = position + 1  # ties share the last place of their group
        terms.append(weights[position] * (end - 1))
    return math.fsum(terms) / math.fsum(weights)


def rank_bound(entropy_bits: float, p_max: float) -> mpf:
    return mpf(2) ** mpf(entropy_bits) / 4 + 1 if entropy_bits >= 2 else 2 - mpf(p_max)


def fano(q: mpf, vocab_size: int) -> mpf:
    def term(x: mpf) -> mpf:
        return -x * mp.log(x, 2) if x > 0 else mpf(0)

    return term(q) + term(1 - q) + (1 - q) * mp.log(vocab_size - 1, 2)


def fano_inverse(entropy_bits: float, vocab_size: int) -> mpf:
    """The q in [1/V, 1] with h(q) = H, by halving: h falls there from log2 V to 0."""
    low, high = mpf(1) / vocab_size, mpf(1)
    for _ in range(120):
        middle = (low + high) / 2
        if fano(middle, vocab_size) > entropy_bits:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def rank_bound_from_entropy(entropy_bits: float, vocab_size: int) -> mpf:
    return mpf(2) ** mpf(entropy_bits) / 4 + 1 if entropy_bits >= 2 else 2 - fano_inverse(entropy_bits, vocab_size)


def xi(rank: int, bound: mpf, kind: str = "max") -> mpf:
    r, s = mpf(rank), mpf(bound)
    if kind == "max":
        return max(r, s)
    if kind == "arithmetic":
        return (r + s) / 2
    if kind == "geometric":
        return mp.sqrt(r * s)
    assert kind == "logarithmic"
    return r if r == s else (r - s) / (mp.log(r) - mp.log(s))


def elasticity(x: mpf, kind: str | float = "dynamic") -> mpf:
    if isinstance(kind, float | int):
        return mpf(kind)
    dynamic = 1 / mp.log(mpf(x) + 1, 2) ** 2
    return dynamic if kind == "dynamic" else dynamic * x / (x + 1)


def log_scale(nll: float, bound: mpf, k: mpf, drop: str = "none") -> mpf:
    surprise = mpf(0) if drop == "probability" else mpf(nll)
    openness = mpf(0) if drop == "entropy" else mp.log(bound)
    return k * (surprise - openness)


F = {
    "inv-log": lambda x: 1 / mp.log(1 + x, 2),
    "neg-log": lambda x: -mp.log(1 + x, 2),
    "inv-sqrt": lambda x: 1 / mp.sqrt(1 + x),
    "inv": lambda x: 1 / (1 + x),
}
LOG_G = {"exp2": mp.log(2), "exp-half": mpf(1) / 2, "exp-double": mpf(2)}
PAPER_PAIRS = [("inv-log", g) for g in LOG_G] + [(f, "exp2") for f in F if f != "inv-log"]


def log_indicator(rank: mpf, expected: mpf, f: str = "inv-log", g: str = "exp2") -> mpf:
    return LOG_G[g] * (F[f](mpf(rank)) - F[f](mpf(expected)))


def log_surrogate(nll: float, bound: mpf, f: str = "inv-log", g: str = "exp2") -> mpf:
    return log_indicator(mp.exp(mpf(nll)), bound, f, g)


def log_weight(name: str, t: Token, **options: object) -> mpf:
    """Ln of a method's weight of nll (-inf for a weight of zero); `options` are those written in its spec."""
    w = weight(name, t, **options)
    return mp.log(w) if w > 0 else mpf("-inf")


def weight(name: str, t: Token, **options: object) -> mpf:
    return _WEIGHTS[name](t, **options)


def _prior(t: Token, prior: str) -> mpf:
    return {"uniform": mpf(1), "prob": t.p}[prior]


def _capped(w: mpf, cap: float | None) -> mpf:
    return w if cap is None else min(w, mpf(cap))


def _eaft(t: Token, k: int = 20, alpha: float = 1.0) -> mpf:
    largest = mpf(3) if k == 20 else mp.log(k)
    return (mpf(topk_entropy(list(t.logits), k)) / largest) ** mpf(alpha)


def _ranktuner(
    t: Token,
    prior: str = "uniform",
    xi_kind: str = "max",
    k: str | float = "dynamic",
    drop: str = "none",
    cap: float | None = None,
) -> mpf:
    s = rank_bound(t.entropy_bits, t.p_max)
    scale = mp.exp(log_scale(t.nll, s, elasticity(xi(t.rank, s, xi_kind), k), drop))
    return _capped(_prior(t, prior) * scale, cap)


def _relative_rank(
    t: Token, f: str = "inv-log", g: str = "exp2", prior: str = "uniform", cap: float | None = None
) -> mpf:
    s = rank_bound(t.entropy_bits, t.p_max)
    return _capped(_prior(t, prior) * mp.exp(-log_surrogate(t.nll, s, f, g)), cap)


def _threshold(t: Token, at: float = 0.1, keep: str = "above", weighted: bool = False) -> mpf:
    kept = t.p >= at if keep == "above" else t.p <= at
    return mpf(int(kept)) * (t.p if weighted else 1)


_WEIGHTS = {
    "sft": lambda t: mpf(1),
    "dft": lambda t: t.p,
    "eaft": _eaft,
    "talr": lambda t, tau, floor=0.01: max(t.p ** (1 / mpf(tau)), mpf(floor)),
    "overtone": lambda t, lam=0.1: 1 - (1 - mpf(lam)) * int(t.is_top),
    "ranktuner": _ranktuner,
    "relative-rank": _relative_rank,
    "alpha-power": lambda t, alpha=0.5: t.p ** mpf(alpha),
    "entropy-reg": lambda t, alpha=0.02: mpf(1),
    "threshold": _threshold,
    "profit": lambda t, tau=0.1: mpf(int(t.p >= tau)),
    "chord": lambda t: t.p * (1 - t.p),
    "deft": lambda t: t.p ** mpf(sum_p2(list(t.logits))),
    "focal": lambda t, gamma=2.0: (1 - t.p) ** mpf(gamma),
    "mile": lambda t, gamma=1.0: (1 + mpf(t.entropy_bits) * mp.log(2)) ** mpf(gamma),
}


def tau(nll: list[float], seq: list[int]) -> float:
    """TALR's temperature: the median over sequences of their mean nll; two middle ones are averaged."""
    means = sorted(
        math.fsum(own) / len(own) for s in set(seq) if (own := [n for n, q in zip(nll, seq, strict=True) if q == s])
    )
    half = len(means) // 2
    return means[half] if len(means) % 2 else (means[half - 1] + means[half]) / 2
