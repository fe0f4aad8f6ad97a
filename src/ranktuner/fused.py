"""The loss of hidden states: which way a method goes backward, and what its numbers must be.

Legend: N supervised tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ranktuner.errors import NonFiniteError, UnsupportedError
from ranktuner.kernels import Head, fused_sums, signals_from_hidden
from ranktuner.loss import LossOutput, Metrics, check_row_weight, divide, metrics_of, weighted_loss
from ranktuner.registry import Method, method
from ranktuner.signals import Signals

Count = int | float | Tensor | None


def fused_weighted_loss(
    hidden_ND: Tensor,
    head_VD: Tensor,
    target_N: Tensor,
    weighting: str | Method,
    *,
    seq_N: Tensor | None = None,
    num_tokens: Count = None,
    row_weight: Tensor | None = None,
    bias: Tensor | None = None,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    chunk: int | None = None,
    grad_budget: float = 0.0,
    implementation: str | None = None,
) -> LossOutput:
    """Return the loss of `loss.weighted_loss` from hidden states and head weight, without ever keeping logits.

    Args:
        hidden_ND: the last hidden states of the supervised tokens (`align.supervised` finds them).
        head_VD: the head's weight.
        target_N: the labels.
        weighting: a Method or its spec.
        seq_N: sequence of each token.
        num_tokens: supervised tokens of the whole optimiser batch; default: those given here.
        row_weight: weights brought by the data.
        bias: [V], of the head.
        softcap: c of c tanh(z/c).
        logit_scale: factor on the product, before the softcap.
        chunk: rows of logits at a time.
        grad_budget: share of the logit gradient's mass that may be left out; 0 is exact.
        implementation: of the row pass: auto, plain, compiled or triton.
    """
    head = Head(head_VD, bias, softcap, logit_scale)
    how = {"chunk": chunk, "grad_budget": grad_budget, "implementation": implementation}
    done = fused(hidden_ND, head, target_N, method(weighting), seq_N, row_weight, num_tokens, how)
    check_finite(done.signals, lambda row: f"row {row}")
    return LossOutput(done.loss, done.metrics)


@dataclass(frozen=True)
class Done:
    """What came of one batch of hidden states."""

    loss: Tensor
    metrics: Metrics
    signals: Signals


def fused(
    hidden: Tensor,
    head: Head,
    target: Tensor,
    chosen: Method,
    seq: Tensor | None,
    weight: Tensor | None,
    count: Count,
    how: Mapping[str, Any],
) -> Done:
    """Gradient in the forward where a token's weight is its own affair, recomputation elsewhere."""
    count = len(target) if count is None else count
    if weight is not None:
        check_row_weight(weight, len(target))
    # fp16 gradients underflow before the loss scale comes in, so they are taken in the backward, behind it
    recompute = chosen.scope == "batch" or (hidden.dtype == torch.float16 and torch.is_grad_enabled())
    if recompute and len(target):
        if how["grad_budget"]:
            raise UnsupportedError(
                f"grad_budget={how['grad_budget']} does not go with {chosen} on {hidden.dtype}; use 0"
            )
        signals = signals_from_hidden(
            hidden,
            head.weight,
            target,
            seq,
            bias=head.bias,
            softcap=head.softcap,
            logit_scale=head.scale,
            needs=chosen.needs,
            chunk=how["chunk"],
            implementation=how["implementation"],
        )
        out = weighted_loss(signals, chosen, num_tokens=count, row_weight=weight)
        return Done(out.loss, out.metrics, signals.detach())
    sums = fused_sums(hidden, head, target, chosen.terms, seq_N=seq, weight_N=weight, needs=chosen.needs, **how)
    metrics = metrics_of(sums.signals, sums.terms)
    if how["grad_budget"]:
        metrics["left_out_max"] = sums.left_out
    return Done(divide(sums.total, count), metrics, sums.signals)


def check_finite(signals: Signals, where: Callable[[int], str]) -> None:
    """Raise if a token's nll is not finite, naming the first by `where(row)`."""
    nll = signals.nll.detach()
    bad = ~torch.isfinite(nll)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise NonFiniteError(
            f"{where(row)}: nll is {float(nll[row])} ({int(bad.sum())} of {len(nll)} tokens are not finite): the "
            "hidden state or the head's weight holds NaN or infinity there; look at the learning rate, the dtype and "
            "this text"
        )
