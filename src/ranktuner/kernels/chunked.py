"""Signals and loss from hidden states and head weight, chunk by chunk: no [N, V] is ever kept.

Two ways backward:
- `fused_sums`: weights are known as soon as a chunk's signals are, so the chunk's gradient is taken at once, in the
  forward. Three matrix products in all (two with a frozen head), nothing is computed twice.
- `signals_from_hidden`: differentiable Signals for any use; the backward computes each chunk's logits again (a fourth
  product).

Legend: N supervised tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ranktuner.errors import InputError, NonFiniteError, UnsupportedError
from ranktuner.kernels import rows
from ranktuner.kernels.budget import WORTH_COPYING, compact, rows_that_count, share_left_out
from ranktuner.kernels.products import Head, HeadGradient, buffer, chunk_rows, common_dtype, multiply, scaled
from ranktuner.kernels.rows import RowStats
from ranktuner.signals import Needs, RowTerms, Signals, check_rows

LN2 = 0.6931471805599453
Terms = Callable[[Signals], RowTerms]
NO_BUDGET_FOR_ENTROPY = (
    "grad_budget bounds the mass of nll gradients and cannot speak for an entropy term; use grad_budget=0"
)


@dataclass(frozen=True)
class FusedSums:
    """What one fused pass gives, undivided."""

    total: Tensor
    """sum of the reported loss; a scalar whose backward delivers the gradients."""
    signals: Signals
    """Detached."""
    terms: RowTerms
    """As used, the data's weights multiplied in."""
    left_out: Tensor
    """Share of the logit gradient's L1 mass that `grad_budget` left out; 0 where it is exact."""


@dataclass(frozen=True)
class _Plan:
    """What a pass needs besides tensors with gradient."""

    head: Head
    target: Tensor
    seq: Tensor
    needs: Needs
    chunk: int
    implementation: str | None
    terms: Terms | None = None
    weight: Tensor | None = None
    budget: float = 0.0


def fused_sums(
    hidden_ND: Tensor,
    head: Head,
    target_N: Tensor,
    terms: Terms,
    *,
    seq_N: Tensor | None = None,
    weight_N: Tensor | None = None,
    needs: Iterable[str] | Needs | None = None,
    chunk: int | None = None,
    grad_budget: float = 0.0,
    implementation: str | None = None,
) -> FusedSums:
    """Return the undivided loss of a token-scope method, with its gradients already taken.

    Args:
        hidden_ND: one row for each supervised token; masked rows never come here.
        head: how they become logits.
        target_N: the labels.
        terms: Signals of a chunk -> RowTerms; called without gradient, once for each chunk.
        seq_N: sequence of each token.
        weight_N: weights brought by the data; they multiply w_nll.
        needs: extra signals.
        chunk: rows of logits at a time; chosen from the sizes by default.
        grad_budget: share of each chunk's logit-gradient mass that may be left out of the backward products.
        implementation: of the row pass; see `rows.choose`.
    """
    want = Needs.parse(needs)
    if not 0 <= grad_budget < 1:
        raise InputError(f"grad_budget is {grad_budget}; a share from 0 (exact) to below 1 was expected")
    if grad_budget and want.entropy_grad:
        raise UnsupportedError(NO_BUDGET_FOR_ENTROPY)
    head.check(hidden_ND)
    if len(target_N) or len(hidden_ND):
        check_rows(hidden_ND, target_N, seq_N, head.vocab_size)
    if weight_N is not None and weight_N.shape != target_N.shape:  # a column would broadcast to [N, N] in silence
        raise InputError(
            f"weight has shape {tuple(weight_N.shape)}; {tuple(target_N.shape)} was expected, one for each token"
        )
    seq = torch.zeros_like(target_N) if seq_N is None else seq_N
    rows_at_once = chunk_rows(len(target_N), head, chunk)
    plan = _Plan(head, target_N, seq, want, rows_at_once, implementation, terms, weight_N, grad_budget)
    out: list[Any] = []
    total = _GradientInForward.apply(hidden_ND, head.weight, head.bias, plan, torch.is_grad_enabled(), out)  # type: ignore[no-untyped-call]
    return FusedSums(total, *out)


def signals_from_hidden(
    hidden_ND: Tensor,
    head_VD: Tensor,
    target_N: Tensor,
    seq_N: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    needs: Iterable[str] | Needs | None = None,
    chunk: int | None = None,
    implementation: str | None = None,
) -> Signals:
    """Take the Signals from hidden states and head weight; the same numbers as `signals_from_logits` on their product.

    Args:
        hidden_ND: one row for each supervised token.
        head_VD: the head's weight.
        target_N: the labels.
        seq_N: sequence of each token.
        bias: [V], of the head.
        softcap: c of c tanh(z/c).
        logit_scale: factor on the product, before the softcap.
        needs: extra signals; `entropy_grad` makes entropy_bits differentiable.
        chunk: rows of logits at a time; chosen from the sizes by default.
        implementation: of the row pass; see `rows.choose`.
    """
    head = Head(head_VD, bias, softcap, logit_scale)
    head.check(hidden_ND)
    check_rows(hidden_ND, target_N, seq_N, head.vocab_size)
    want = Needs.parse(needs)
    seq = torch.zeros_like(target_N) if seq_N is None else seq_N
    plan = _Plan(head, target_N, seq, want, chunk_rows(len(target_N), head, chunk), implementation)
    nll, bits, *rest = _Recompute.apply(hidden_ND, head_VD, bias, plan)  # type: ignore[no-untyped-call]
    bits = bits if want.entropy_grad else bits.detach()
    signals = Signals(nll, rest[0], rest[1], bits, rest[2], seq, head.vocab_size, *rest[3:])
    _check_finite(signals, hidden_ND)
    return signals


# --- gradient in the forward -----------------------------------------------------------------------------------------


class _GradientInForward(torch.autograd.Function):
    """The loss, with the gradients of hidden states and head taken while each chunk's logits are there."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan, grad: bool, out: list[Any]
    ) -> Tensor:
        wants = [grad and need for need in ctx.needs_input_grad[:3]]
        ctx.dtypes = [None if t is None else t.dtype for t in (hidden, weight, bias)]
        dtype = common_dtype(hidden, weight)
        with torch.autocast(hidden.device.type, enabled=False):
            state = _Pass(hidden.to(dtype), plan.head.cast(dtype), plan, wants)
            for start in range(0, len(plan.target), plan.chunk):
                state.take(slice(start, start + plan.chunk))
            total, *rest = state.finish()
        out.extend(rest)
        # The gradients live on ctx, not among the saved tensors: they are results, and hooks must not repack them.
        ctx.gradients = state.gradients()
        return total.to(torch.promote_types(dtype, torch.float32))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise UnsupportedError(
                "backward was called twice through one fused loss: its gradients were taken in the forward and given "
                "away; run the forward again, or use signals_from_hidden, which recomputes"
            )
        gradients, ctx.gradients = ctx.gradients, None
        pairs = zip(gradients, ctx.dtypes, strict=True)
        return *(None if g is None else scaled(g, grad_total, dtype) for g, dtype in pairs), None, None, None


class _Pass:
    """One walk over the chunks: signals, terms and gradients."""

    def __init__(self, hidden: Tensor, head: Head, plan: _Plan, wants: list[bool]) -> None:
        self.hidden, self.head, self.plan, self.wants = hidden, head, plan, wants
        n = len(plan.target)
        self.logits = buffer((min(plan.chunk, n), head.vocab_size), hidden.dtype, hidden.device)
        chunks = -(-n // plan.chunk) if n else 1
        self.d_hidden = torch.zeros_like(hidden) if wants[0] else None
        self.d_head = HeadGradient(head, weight=wants[1], bias=wants[2], chunks=chunks)
        self.signals: list[Signals] = []
        self.terms: list[RowTerms] = []
        self.mass: list[Tensor] = []

    def take(self, part: slice, stats: RowStats | None = None) -> None:
        """Do everything for one chunk while its logits are there; `stats` where they are known already."""
        plan, hidden, target = self.plan, self.hidden[part], self.plan.target[part]
        logits = self.head.logits(hidden, self.logits[: len(target)])
        implementation = rows.choose(logits, plan.implementation)
        stats = stats or rows.statistics(logits, target, plan.needs, implementation)
        signals = _signals(stats, plan.seq[part], self.head.vocab_size)
        assert plan.terms is not None
        terms = _times(plan.terms(signals), None if plan.weight is None else plan.weight[part])
        if plan.budget and terms.w_entropy is not None:
            raise UnsupportedError(NO_BUDGET_FOR_ENTROPY)
        self.signals.append(signals)
        self.terms.append(terms)
        if any(self.wants):
            self._backward(logits, hidden, target, stats, terms, part, implementation)

    def _backward(
        self,
        logits: Tensor,
        hidden: Tensor,
        target: Tensor,
        stats: RowStats,
        terms: RowTerms,
        part: slice,
        implementation: rows.Implementation,
    ) -> None:
        # asking which rows have none costs a synchronisation, which a GPU feels
        ask = terms.w_entropy is None and (self.plan.budget > 0 or logits.device.type == "cpu")
        keep = rows_that_count(stats.nll, terms.w_nll, self.plan.budget) if ask else None
        index: Tensor | None = None
        w_nll, w_entropy = terms.w_nll.to(stats.nll.dtype), terms.w_entropy
        if keep is not None:
            kept, mass = keep
            self.mass.append(mass)
            if kept.numel() == 0:
                return
            if kept.numel() < (len(target) if self.plan.budget else WORTH_COPYING * len(target)):
                index = compact(logits, kept)
                logits, hidden, target, w_nll = logits[: len(index)], hidden[index], target[index], w_nll[index]
                stats = _select(stats, index)
        if self.head.scale != 1.0:
            # The gradient is linear in the weights: scaling them spares a pass over the logits, and its rounding.
            w_nll = w_nll * self.head.scale
            w_entropy = None if w_entropy is None else w_entropy * self.head.scale
        rows.write_gradient(logits, target, stats, w_nll, w_entropy, self.head.softcap, implementation)
        if self.d_hidden is not None:
            if index is None:
                multiply(logits, self.head.weight, self.d_hidden[part])
            else:
                self.d_hidden[part][index] = multiply(logits, self.head.weight, torch.empty_like(hidden))
        self.d_head.add(logits, hidden)

    def finish(self) -> tuple[Tensor, Signals, RowTerms, Tensor]:
        """Return the undivided loss, all signals, all terms, and the share left out."""
        signals, terms = _join(self.signals, self.plan, self.head), _join_terms(self.terms, self.hidden)
        return _reported(signals, terms), signals, terms, share_left_out(self.mass, self.hidden)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients of hidden states, weight and bias, of the undivided loss."""
        return [self.d_hidden, *self.d_head.result()]


def _times(terms: RowTerms, weight: Tensor | None) -> RowTerms:
    if weight is None:
        return terms
    w = weight.to(terms.w_nll.dtype)
    return RowTerms(terms.w_nll * w, terms.w_entropy, None if terms.reported is None else terms.reported * w)


def _reported(signals: Signals, terms: RowTerms) -> Tensor:
    nll = terms.w_nll.double() * signals.nll.double() if terms.reported is None else terms.reported.double()
    total = nll.sum()
    if terms.w_entropy is not None:
        total = total + (terms.w_entropy.double() * signals.entropy_bits.double()).sum() * LN2
    return total


def _select(stats: RowStats, index: Tensor | slice) -> RowStats:
    return RowStats(**{k: v[index] for k, v in vars(stats).items() if v is not None})


# --- recompute in the backward ---------------------------------------------------------------------------------------


class _Recompute(torch.autograd.Function):
    """Per-token signals with differentiable nll and entropy; the backward builds each chunk's logits again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan
    ) -> tuple[Tensor | None, ...]:
        ctx.dtype = common_dtype(hidden, weight)
        ctx.plan = plan
        ctx.save_for_backward(hidden, weight, bias)
        parts: list[RowStats] = []
        with torch.autocast(hidden.device.type, enabled=False):
            head, h = plan.head.cast(ctx.dtype), hidden.to(ctx.dtype)
            kept = buffer((min(plan.chunk, len(h)), head.vocab_size), h.dtype, h.device)
            for i in range(0, len(h), plan.chunk):
                part = slice(i, i + plan.chunk)
                logits = head.logits(h[part], kept[: len(plan.target[part])])
                how = rows.choose(logits, plan.implementation)
                parts.append(rows.statistics(logits, plan.target[part], plan.needs, how))
        joined = _cat(parts)
        # Aliases: an output held on ctx would hold ctx in turn, and with it the hidden states of a forward that is
        # never gone back through.
        ctx.stats = RowStats(**{k: v.detach() for k, v in vars(joined).items() if v is not None})
        out = (joined.nll, joined.entropy / LN2, joined.rank, joined.is_top, joined.p_max)
        extras = (joined.topk_entropy, joined.sum_p2, joined.mass_above, joined.expected_rank)
        ctx.mark_non_differentiable(*(t for t in (*out[2:], *extras) if t is not None))
        return *out, *extras

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_nll: Tensor, grad_bits: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        plan: _Plan = ctx.plan
        wants = list(ctx.needs_input_grad[:3])
        entropy = grad_bits / LN2 if plan.needs.entropy_grad else None
        with torch.autocast(hidden.device.type, enabled=False):
            # from the saved tensors: under resharding the plan's own weight may be gone by now
            head = Head(weight, bias, plan.head.softcap, plan.head.scale).cast(ctx.dtype)
            grad = _Plan(
                head, plan.target, plan.seq, Needs(), plan.chunk, plan.implementation, _given(grad_nll, entropy, plan)
            )
            state = _Pass(hidden.to(ctx.dtype), head, grad, wants)
            for i in range(0, len(hidden), plan.chunk):
                part = slice(i, i + plan.chunk)
                state.take(part, _select(ctx.stats, part))
        dtypes = (hidden.dtype, weight.dtype, None if bias is None else bias.dtype)
        return *(None if g is None else g.to(d) for g, d in zip(state.gradients(), dtypes, strict=True)), None


def _given(grad_nll: Tensor, grad_entropy: Tensor | None, plan: _Plan) -> Terms:
    """Terms that are the incoming gradients, handed out chunk by chunk in order."""
    starts = iter(range(0, len(plan.target), plan.chunk))

    def terms(signals: Signals) -> RowTerms:
        i = next(starts)
        part = slice(i, i + plan.chunk)
        return RowTerms(grad_nll[part], None if grad_entropy is None else grad_entropy[part])

    return terms


# --- pieces ----------------------------------------------------------------------------------------------------------


def _signals(stats: RowStats, seq: Tensor, vocab_size: int) -> Signals:
    return Signals(
        nll=stats.nll,
        rank=stats.rank,
        is_top=stats.is_top,
        entropy_bits=stats.entropy / LN2,
        p_max=stats.p_max,
        seq=seq,
        vocab_size=vocab_size,
        topk_entropy=stats.topk_entropy,
        sum_p2=stats.sum_p2,
        mass_above=stats.mass_above,
        expected_rank=stats.expected_rank,
    )


def _cat(parts: list[RowStats]) -> RowStats:
    columns = {
        f.name: [getattr(p, f.name) for p in parts] for f in fields(RowStats) if getattr(parts[0], f.name) is not None
    }
    return RowStats(**{name: torch.cat(column) for name, column in columns.items()})


def _join(parts: list[Signals], plan: _Plan, head: Head) -> Signals:
    if not parts:
        return _no_signals(plan, head)
    names = [f.name for f in fields(Signals) if isinstance(getattr(parts[0], f.name), Tensor)]
    return Signals(**{n: torch.cat([getattr(p, n) for p in parts]) for n in names}, vocab_size=head.vocab_size)


def _join_terms(parts: list[RowTerms], hidden: Tensor) -> RowTerms:
    if not parts:
        return RowTerms(hidden.new_zeros(0, dtype=torch.promote_types(hidden.dtype, torch.float32)))
    there = [f.name for f in fields(RowTerms) if getattr(parts[0], f.name) is not None]
    return RowTerms(**{name: torch.cat([getattr(p, name) for p in parts]) for name in there})


def _no_signals(plan: _Plan, head: Head) -> Signals:
    """Signals of an all-masked micro-batch: no token, and still a loss with a gradient path."""
    none = head.weight.new_zeros(0, dtype=torch.promote_types(head.weight.dtype, torch.float32))
    return Signals(none, none.long(), none.bool(), none, none, plan.seq, head.vocab_size)


def _check_finite(signals: Signals, hidden: Tensor) -> None:
    if bool(torch.isfinite(signals.nll.detach()).all()):
        return
    row = int((~torch.isfinite(signals.nll.detach())).nonzero()[0])
    if bool(torch.isfinite(hidden[row]).all()):
        cause = "its logits are not finite, or that of its label is -inf; check the head, and how labels are masked"
    else:
        cause = "its hidden state is not finite; check the model's body"
    raise NonFiniteError(f"row {row} of {len(signals)}: nll is {float(signals.nll[row])}: {cause}")
