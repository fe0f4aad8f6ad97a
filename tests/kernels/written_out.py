"""The judge of the kernels: loss and gradients written out densely in float64, and the paths that are compared with it.

Logits are made as a model makes them, each step rounded to its dtype; from there on everything is float64 and
autograd's. A rounding has slope 1 in it, so what is left between a kernel and the judge is the kernel's own error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
import weightings
from torch import Tensor

from ranktuner.kernels import FusedSums, Head, fused_sums, signals_from_hidden
from ranktuner.loss import weighted_loss
from ranktuner.registry import Method, method
from ranktuner.signals import Signals

COUNT = 100.0
"""num_tokens of every case: not the number of rows, so that a hidden division would show."""

TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Largest relative error of a gradient, in Frobenius norm: two roundings of the dtype."""
CAPPED = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 8e-3, torch.bfloat16: 4e-2}
"""With a softcap, whose slope 1 - (z/c)^2 is a difference of rounded numbers (as it is in torch's own tanh)."""
LOSS_TOLERANCE = dict.fromkeys(TOLERANCE, 4e-6) | {torch.float64: 1e-12}
"""Of a loss: statistics are fp32 whatever the logits are."""
DTYPES = list(TOLERANCE)

HEADS: dict[str, dict[str, float | bool]] = {
    "linear": {},
    "bias": {"bias": True},
    "softcap": {"softcap": 8.0},
    "scale": {"scale": 0.3},
    "negative scale": {"scale": -1.7},
    "bias, scale, softcap": {"bias": True, "scale": 2.0, "softcap": 10.0},
}

SIZES = {
    "V=37, chunk=3": (37, 8, 41, 3),
    "V=37, one chunk": (37, 8, 41, None),
    "chunk divides N": (37, 8, 12, 3),
    "N=1": (37, 8, 1, None),
    "chunk=1": (37, 8, 5, 1),
    "V=2": (2, 5, 17, 4),
    "V=301": (301, 16, 41, 7),
}
"""Vocabulary, hidden, tokens, rows of a chunk."""

TOKEN_METHODS = [*weightings.SHORT, "talr", "entropy-reg(alpha=0.7)"]
BATCH_METHODS = ["talr(tau=micro-batch)"]


@dataclass(frozen=True)
class Problem:
    """Tokens before a head."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    target: Tensor
    seq: Tensor
    row_weight: Tensor
    softcap: float | None = None
    scale: float = 1.0

    @property
    def leaves(self) -> list[Tensor]:
        return [t for t in (self.hidden, self.weight, self.bias) if t is not None]

    @property
    def head(self) -> Head:
        return Head(self.weight, self.bias, self.softcap, self.scale)

    def fresh(self) -> Problem:
        """The same numbers in new leaves that want a gradient."""
        hidden, weight = (t.detach().clone().requires_grad_() for t in (self.hidden, self.weight))
        bias = None if self.bias is None else self.bias.detach().clone().requires_grad_()
        return replace(self, hidden=hidden, weight=weight, bias=bias)


def problem(
    vocab: int = 37,
    width: int = 8,
    n: int = 41,
    dtype: torch.dtype = torch.float64,
    *,
    bias: bool = False,
    softcap: float | None = None,
    scale: float = 1.0,
    seed: int = 0,
    device: str = "cpu",
) -> Problem:
    """Random tokens; half of the labels are what the head says, so that ranks, gates and entropies differ."""
    draw = torch.Generator().manual_seed(seed)
    hidden, weight, b = (
        torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((n, width), (vocab, width), (vocab,))
    )
    weight *= 3 / math.sqrt(width)
    made = Problem(
        hidden.to(dtype),
        weight.to(dtype),
        b.to(dtype) if bias else None,
        torch.randint(0, vocab, (n,), generator=draw),
        torch.arange(n) // 10,
        torch.rand(n, generator=draw),
        softcap,
        scale,
    )
    made.target[::2] = rounded_logits(made).argmax(dim=1)[::2]
    tensors = {k: v.to(device) for k, v in vars(made).items() if isinstance(v, Tensor)}
    return replace(made, **tensors)


def rounded_logits(p: Problem) -> Tensor:
    """The logits as a model writes them, in its dtype."""
    return _capped(_scaled(F.linear(p.hidden, p.weight, p.bias), p), p)


def _scaled(z: Tensor, p: Problem) -> Tensor:
    return z if p.scale == 1.0 else z * p.scale


def _capped(z: Tensor, p: Problem) -> Tensor:
    return z if p.softcap is None else torch.tanh(z / p.softcap) * p.softcap


def _pinned(exact: Tensor, rounded: Tensor) -> Tensor:
    """The rounded value with the slope of the exact one."""
    return exact + torch.where(torch.isfinite(exact), rounded.double() - exact, 0).detach()


@dataclass(frozen=True)
class Outcome:
    """A loss and the gradients of hidden states, weight and bias."""

    loss: Tensor
    gradients: list[Tensor]
    signals: Signals


def primed(spec: str, nll: Tensor, seq: Tensor) -> Method:
    """The method; the state of one that looks a step back is what a first pass over the same tokens gives."""
    chosen = method(spec)
    if chosen.context is not None:
        chosen.context.prime(nll, seq)
    return chosen


def dense_signals(z: Tensor, low: Tensor, p: Problem, spec: str | None) -> tuple[Signals, Tensor, Tensor]:
    """Signals, differentiable nll and entropy (nats), from float64 logits and the rounded ones they stand for."""
    logp = torch.log_softmax(z, dim=1)
    prob = logp.exp()
    nll = -logp.gather(1, p.target[:, None])[:, 0]
    nats = -(prob * logp.clamp_min(-1e300)).sum(dim=1)
    label = low.gather(1, p.target[:, None])
    needs = method(spec).needs if spec else []
    topk = next((int(n.split(":")[1]) for n in needs if n.startswith("topk")), 0)
    best = torch.log_softmax(z.topk(min(topk or 1, z.shape[1]), dim=1).values, dim=1)
    with torch.no_grad():
        signals = Signals(
            nll.detach(), (low >= label).sum(dim=1), label[:, 0] == low.amax(dim=1), nats / math.log(2),
            prob.amax(dim=1), p.seq, z.shape[1],
            topk_entropy=-(best.exp() * best.clamp_min(-1e300)).sum(dim=1) if topk else None,
            sum_p2=prob.square().sum(dim=1),
            mass_above=torch.where(low > label, prob, 0).sum(dim=1),
            expected_rank=expected_rank(prob, low) if z.shape[1] < 999 else None,
        ).detach()  # fmt: skip
    return signals, nll, nats


def expected_rank(prob: Tensor, low: Tensor) -> Tensor:
    """Sum of p_v count(z >= z_v), by comparing every pair."""
    return ((low[:, None] >= low[:, :, None]).sum(dim=2) * prob).sum(dim=1)


def judged(p: Problem, spec: str) -> Outcome:
    """What loss and gradients are, in float64."""
    leaves = [t.detach().double().requires_grad_() for t in p.leaves]
    bias = leaves[2] if len(leaves) > 2 else None
    exact = replace(p, hidden=leaves[0], weight=leaves[1], bias=bias)
    product = F.linear(p.hidden, p.weight, p.bias)
    z = _pinned(_scaled(F.linear(leaves[0], leaves[1], bias), exact), _scaled(product, p))
    low = rounded_logits(p).detach()
    z = z if p.softcap is None else _pinned(_capped(z, exact), low)
    signals, nll, nats = dense_signals(z, low, p, spec)
    terms = primed(spec, signals.nll, p.seq).terms(signals)
    rw = p.row_weight.double()
    through = (terms.w_nll * rw * nll).sum()
    reported = through if terms.reported is None else (terms.reported * rw).sum()
    if terms.w_entropy is not None:
        extra = (terms.w_entropy * nats).sum()
        through, reported = through + extra, reported + extra
    gradients = torch.autograd.grad(through / COUNT, leaves)
    return Outcome(reported.detach() / COUNT, list(gradients), signals)


def fused(p: Problem, spec: str, chunk: int | None = None, how: str | None = "plain", **kwargs: float) -> Outcome:
    """Loss and gradients with the gradient taken in the forward."""
    p = p.fresh()
    chosen = primed_by_kernel(p, spec)
    out = sums_of(p, chosen.terms, chunk=chunk, needs=chosen.needs, implementation=how, **kwargs)
    loss = out.total / COUNT
    return Outcome(loss.detach(), gradients_of(loss, p), out.signals)


def sums_of(p: Problem, terms: Callable[[Signals], object], **kwargs: object) -> FusedSums:
    """`fused_sums` of a problem with its sequences and row weights."""
    return fused_sums(p.hidden, p.head, p.target, terms, seq_N=p.seq, weight_N=p.row_weight, **kwargs)  # type: ignore[arg-type]


def recomputed(p: Problem, spec: str, chunk: int | None = None, how: str | None = "plain") -> Outcome:
    """Loss and gradients from differentiable Signals, whose backward computes the logits again."""
    p = p.fresh()
    chosen = primed_by_kernel(p, spec)
    signals = signals_of(p, chunk=chunk, needs=chosen.needs, implementation=how)
    loss = weighted_loss(signals, chosen, num_tokens=COUNT, row_weight=p.row_weight).loss
    return Outcome(loss.detach(), gradients_of(loss, p), signals)


def gradients_of(loss: Tensor, p: Problem) -> list[Tensor]:
    """Through a scaled loss where the dtype is float16, as it is trained."""
    factor = 4096.0 if p.hidden.dtype is torch.float16 else 1.0
    found = torch.autograd.grad(loss * factor, p.leaves)
    return [g if factor == 1.0 else g.double() / factor for g in found]


def signals_of(p: Problem, **kwargs: object) -> Signals:
    """`signals_from_hidden` of a problem."""
    return signals_from_hidden(
        p.hidden, p.weight, p.target, p.seq, bias=p.bias, softcap=p.softcap, logit_scale=p.scale, **kwargs
    )  # type: ignore[arg-type]


def primed_by_kernel(p: Problem, spec: str) -> Method:
    with torch.no_grad():
        return primed(spec, signals_of(p, implementation="plain").nll, p.seq)


def error(got: Tensor, want: Tensor) -> float:
    """Relative error in Frobenius norm; a want of nothing counts as 1e-9 so that noise is not magnified."""
    return float((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-9))


def assert_same(got: Outcome, want: Outcome, p: Problem, tolerance: float | None = None) -> None:
    """The loss and every gradient within the tolerance of the problem's dtype."""
    dtype = p.hidden.dtype
    assert error(got.loss, want.loss) <= LOSS_TOLERANCE[dtype], ("loss", error(got.loss, want.loss))
    allowed = tolerance or (CAPPED if p.softcap else TOLERANCE)[dtype]
    names = ("hidden", "weight", "bias")[: len(p.leaves)]
    for name, g, w in zip(names, got.gradients, want.gradients, strict=True):
        assert error(g, w) <= allowed, (name, error(g, w))


def assert_same_signals(got: Signals, want: Signals, tolerance: float) -> None:
    """Counts exactly, numbers within the tolerance (of the larger of 1 and the value)."""
    assert got.rank.tolist() == want.rank.tolist()
    assert got.is_top.tolist() == want.is_top.tolist()
    assert got.seq.tolist() == want.seq.tolist()
    assert got.vocab_size == want.vocab_size
    for name in ("nll", "entropy_bits", "p_max", "topk_entropy", "sum_p2", "mass_above", "expected_rank"):
        g, w = getattr(got, name), getattr(want, name)
        if g is not None:
            off = ((g.double() - w.double()).abs() / w.double().abs().clamp_min(1)).max()
            assert off <= tolerance, (name, float(off))
