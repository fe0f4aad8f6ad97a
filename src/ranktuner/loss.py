"""From Signals and a Method to a scalar: undivided sums, then the only division.

    loss = sum(terms) / num_tokens

`num_tokens` counts the supervised tokens of the whole optimiser batch over all micro-batches and processes. It is never
a mean of means: micro-batches of 30, 8 and 3 tokens then give the gradient of the 41.

Metrics are raw sums in float64, so that any caller can add them up; the end of a name says how it reduces
(`_sum` adds, `_max` takes the largest). `summarize` turns them into the numbers of a log line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ranktuner.bounds import HIGH_ENTROPY_BITS, LN2, elasticity, rank_bound, xi
from ranktuner.errors import InputError
from ranktuner.registry import Method, method
from ranktuner.signals import RowTerms, Signals, signals_from_logits

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class LossOutput:
    """A scalar to call backward on, and the raw sums behind it."""

    loss: Tensor
    metrics: Metrics


def weighted_loss(
    signals: Signals,
    weighting: str | Method,
    *,
    num_tokens: int | float | Tensor | None = None,
    row_weight: Tensor | None = None,
) -> LossOutput:
    """Return the loss of differentiable Signals (`signals_from_logits`, or recomputed ones).

    Args:
        signals: with a differentiable nll.
        weighting: a Method or its spec.
        num_tokens: supervised tokens of the whole optimiser batch; default: those given here.
        row_weight: weights brought by the data, [N]; they multiply the weight of the nll.
    """
    chosen = method(weighting)
    terms = weigh(chosen, signals, row_weight)
    loss = (terms.w_nll * signals.nll).sum()
    if terms.w_entropy is not None:
        if signals.nll.requires_grad and not signals.entropy_bits.requires_grad:
            raise InputError(f"{chosen} needs a differentiable entropy: pass needs=['entropy_grad'] to the signals")
        loss = loss + (terms.w_entropy * signals.entropy_bits).sum() * LN2
    metrics = metrics_of(signals, terms)
    # the value is the reported one, the gradient that of the terms
    loss = loss + (metrics["loss_sum"].to(loss.dtype) - loss.detach())
    return LossOutput(divide(loss, len(signals) if num_tokens is None else num_tokens), metrics)


def weigh(chosen: Method, signals: Signals, row_weight: Tensor | None = None) -> RowTerms:
    """Return the method's terms with the data's own weights multiplied in."""
    terms = chosen.terms(signals)
    if row_weight is None:
        return terms
    check_row_weight(row_weight, len(signals))
    w = row_weight.to(signals.nll.dtype)
    return RowTerms(terms.w_nll * w, terms.w_entropy, None if terms.reported is None else terms.reported * w)


def check_row_weight(row_weight: Tensor, n: int) -> None:
    """Refuse weights from the data that are not one finite number >= 0 for each token."""
    if row_weight.shape != (n,):
        raise InputError(f"row_weight has shape {tuple(row_weight.shape)}; ({n},) was expected, one for each token")
    bad = ~torch.isfinite(row_weight) | (row_weight < 0)
    if bool(bad.any()):
        i = int(bad.nonzero()[0])
        raise InputError(f"row_weight of token {i} is {float(row_weight[i])}; a finite number >= 0 was expected")


def divide(total: Tensor, num_tokens: int | float | Tensor) -> Tensor:
    """The only division: by the count of the whole optimiser batch, at least 1."""
    if isinstance(num_tokens, Tensor):
        return total / num_tokens.to(total.device).clamp_min(1)
    return total / max(num_tokens, 1)


def metrics_of(signals: Signals, terms: RowTerms) -> Metrics:
    """Return the raw sums of a micro-batch, float64; `loss_sum` is the undivided loss as it is reported."""
    s = signals.detach()
    nll, w = s.nll.double(), terms.w_nll.double()
    reported = w * nll if terms.reported is None else terms.reported.double()
    loss = reported.sum()
    if terms.w_entropy is not None:
        loss = loss + (terms.w_entropy.double() * s.entropy_bits.double()).sum() * LN2
    k = elasticity(xi(s.rank, rank_bound(s.entropy_bits, s.p_max)))
    zero = nll.new_zeros(())
    return {
        "tokens_sum": zero + len(s),
        "loss_sum": loss,
        "nll_sum": nll.sum(),
        "weight_sum": w.sum(),
        "weight_sq_sum": (w * w).sum(),
        "weight_max": w.amax() if len(s) else zero,
        "k_sum": k.double().sum(),
        "entropy_bits_sum": s.entropy_bits.double().sum(),
        "high_entropy_sum": (s.entropy_bits >= HIGH_ENTROPY_BITS).double().sum(),
        "top1_sum": s.is_top.double().sum(),
    }


def add_metrics(parts: Iterable[Mapping[str, Tensor]]) -> Metrics:
    """Add raw sums of micro-batches or processes."""
    total: Metrics = {}
    for part in parts:
        for name, value in part.items():
            if name not in total:
                total[name] = value
            elif name.endswith("_max"):
                total[name] = torch.maximum(total[name], value)
            elif name.endswith("_sum"):
                total[name] = total[name] + value
            else:
                raise InputError(f"metric {name!r} does not say how it reduces; its name must end in _sum or _max")
    return total


def summarize(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """Turn raw sums into the numbers of a log line: means over tokens, and the share of tokens that really count.

    `effective_tokens` = (sum w)^2 / (N sum w^2): 1 where all weights are equal.
    """
    if not metrics:
        raise InputError(
            "there are no metrics to summarize: sums of at least one forward were expected; no labelled forward ran "
            "since the last pop_metrics()"
        )
    m = {name: float(value) for name, value in metrics.items()}
    n = max(m["tokens_sum"], 1.0)
    squares = m["weight_sq_sum"]
    return {
        "loss": m["loss_sum"] / n,
        "nll": m["nll_sum"] / n,
        "weight_mean": m["weight_sum"] / n,
        "weight_max": m["weight_max"],
        "effective_tokens": m["weight_sum"] ** 2 / (n * squares) if squares > 0 else 0.0,
        "k_mean": m["k_sum"] / n,
        "entropy_bits_mean": m["entropy_bits_sum"] / n,
        "high_entropy_share": m["high_entropy_sum"] / n,
        "top1": m["top1_sum"] / n,
        "tokens": m["tokens_sum"],
    }


def dense_loss(
    logits_NV: Tensor,
    target_N: Tensor,
    weighting: str | Method,
    *,
    seq_N: Tensor | None = None,
    num_tokens: int | float | Tensor | None = None,
    row_weight: Tensor | None = None,
) -> LossOutput:
    """Return the loss from logits, for every method: the reference, and the home of `overtone(mode=mix)`."""
    chosen = method(weighting)
    if (chosen.name, chosen.parameters.get("mode")) == ("overtone", "mix"):
        return _overtone_mix(logits_NV, target_N, chosen, num_tokens, row_weight)
    signals = signals_from_logits(logits_NV, target_N, seq_N, needs=chosen.needs)
    return weighted_loss(signals, chosen, num_tokens=num_tokens, row_weight=row_weight)


def _overtone_mix(
    logits_NV: Tensor, target_N: Tensor, chosen: Method, num_tokens: int | float | Tensor | None, weight: Tensor | None
) -> LossOutput:
    """Cross-entropy to the target lam onehot + (1-lam) q; q is the prediction, filtered and renormalised.

    Our reading of the paper: q keeps the logits within one standard deviation of the largest (top-n-sigma, n = 1), and
    a token is skipped (plain cross-entropy) where the label would not lead the mixed target.
    """
    lam = chosen.parameters["lam"]
    signals = signals_from_logits(logits_NV, target_N)
    if weight is not None:
        check_row_weight(weight, len(signals))
    ln_p = torch.log_softmax(logits_NV.to(signals.nll.dtype), dim=1)
    with torch.no_grad():
        z = logits_NV.to(signals.nll.dtype)
        spread = torch.where(torch.isfinite(z), z, torch.nan)
        centred = spread - spread.nanmean(dim=1, keepdim=True)
        sigma = centred.square().nanmean(dim=1, keepdim=True).sqrt()
        q = torch.softmax(z.masked_fill(z < z.amax(dim=1, keepdim=True) - sigma, -torch.inf), dim=1)
        onehot = torch.zeros_like(q).scatter_(1, target_N[:, None], 1.0)
        mixed = lam * onehot + (1 - lam) * q
        leads = mixed.gather(1, target_N[:, None]) >= mixed.amax(dim=1, keepdim=True)
        mixed = torch.where(leads, mixed, onehot)
    cross = -(mixed * ln_p.clamp_min(torch.finfo(ln_p.dtype).min)).sum(dim=1)
    w = torch.ones_like(cross) if weight is None else weight.to(cross.dtype)
    metrics = metrics_of(signals, RowTerms(w, reported=w * cross.detach()))
    loss = (w * cross).sum()
    return LossOutput(divide(loss, len(target_N) if num_tokens is None else num_tokens), metrics)
