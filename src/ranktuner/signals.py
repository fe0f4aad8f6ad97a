"""Signals: what the model says about each supervised token, and the dense reference that takes them from logits.

Legend: N supervised tokens, V vocabulary.

All of a token's signals come from one set of logits: the matrix product as rounded to its output dtype, then
taken to fp32 (float64 stays float64). Ties count in the rank: R = count(z >= z_label), so R >= 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranktuner.bounds import LN2
from ranktuner.errors import InputError, NonFiniteError, nearest

CHUNK_ELEMENTS = 1 << 22
"""Logits in one chunk of the dense reference: 16 MiB in fp32."""


@dataclass(frozen=True)
class Signals:
    """What the model says about each supervised token; all tensors are [N]."""

    nll: Tensor
    """-ln p of the label, nats; the only differentiable field (besides entropy_bits, when asked for)."""
    rank: Tensor
    """R: how many logits are at least the label's; int64, 1 is the top."""
    is_top: Tensor
    """Whether the label's logit is the largest (also in a tie)."""
    entropy_bits: Tensor
    """H of the distribution, in bits."""
    p_max: Tensor
    """The largest probability."""
    seq: Tensor
    """Which sequence of the batch the token belongs to; int64."""
    vocab_size: int
    """V."""
    topk_entropy: Tensor | None = None
    """Entropy of the distribution renormalised over its top K, nats."""
    sum_p2: Tensor | None = None
    """Sum of p_v^2 over the vocabulary."""
    mass_above: Tensor | None = None
    """Probability of the tokens whose logit is above the label's."""
    expected_rank: Tensor | None = None
    """E[R] under the model's own distribution; float64."""

    @property
    def p(self) -> Tensor:
        """Probability of the label."""
        return torch.exp(-self.nll)

    def __len__(self) -> int:
        return self.nll.shape[0]

    def map(self, change: Any) -> Signals:
        """Return the Signals with `change` applied to every tensor."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: change(v) for k, v in tensors.items() if isinstance(v, Tensor)})

    def detach(self) -> Signals:
        """Return the same numbers without gradient."""
        return self.map(Tensor.detach)


@dataclass(frozen=True)
class RowTerms:
    """What a method answers for each token: loss terms w_nll * nll + w_entropy * H, H in nats."""

    w_nll: Tensor
    w_entropy: Tensor | None = None
    reported: Tensor | None = None
    """The loss to report in place of w_nll * nll; its gradient is still that of the terms."""


@dataclass(frozen=True)
class Needs:
    """What a method reads beyond the signals that are always there."""

    topk: int = 0
    """K of `topk_entropy`; 0 for none."""
    sum_p2: bool = False
    mass_above: bool = False
    entropy_grad: bool = False
    """Whether entropy_bits must be differentiable."""
    expected_rank: bool = False

    @staticmethod
    def parse(needs: Iterable[str] | Needs | None) -> Needs:
        """Read names such as `sum_p2`, `mass_above`, `entropy_grad` and `topk_entropy:20`."""
        if needs is None or isinstance(needs, Needs):
            return needs or Needs()
        if isinstance(needs, str):
            raise InputError(f"needs is the text {needs!r}; a list of names was expected: [{needs!r}]")
        topk, flags = 0, dict.fromkeys(("sum_p2", "mass_above", "entropy_grad", "expected_rank"), False)
        for name in needs:
            kind, _, k = name.partition(":")
            if kind == "topk_entropy" and k.isdigit() and int(k) >= 1:
                if topk not in (0, int(k)):
                    raise InputError(f"needs asks for topk_entropy of {topk} and {k}; one pass gives one: score twice")
                topk = int(k)
            elif name in flags:
                flags[name] = True
            else:
                raise InputError(f"unknown need {name!r}; {nearest(name, [*flags, 'topk_entropy:20'])}")
        return Needs(topk, **flags)


def signals_from_logits(
    logits_NV: Tensor,
    target_N: Tensor,
    seq_N: Tensor | None = None,
    *,
    needs: Iterable[str] | Needs | None = None,
    chunk: int | None = None,
) -> Signals:
    """Take the Signals from logits: the dense reference that every other path is compared with.

    Rows are read in chunks; beyond the input, and the gradient of the input in backward, only a small multiple of
    a chunk is kept.

    Args:
        logits_NV: one row for each supervised token, any float dtype.
        target_N: the labels, 0 <= label < V; prompt, padding and -100 are dropped before (`align.supervised`).
        seq_N: the sequence of each token; one sequence by default.
        needs: extra signals, by name (`Needs.parse`).
        chunk: rows at a time; chosen from V by default.

    Returns:
        Signals; `nll` is differentiable, and `entropy_bits` too where `needs` has `entropy_grad`.
    """
    want = Needs.parse(needs)
    check_rows(logits_NV, target_N, seq_N)
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk is {chunk}; at least 1 row at a time was expected: leave it out to have it chosen")
    rows = chunk or max(1, CHUNK_ELEMENTS // logits_NV.shape[1])
    nll, entropy_bits, rank, is_top, p_max, topk, sum_p2, above = _DenseSignals.apply(logits_NV, target_N, want, rows)  # type: ignore[no-untyped-call]
    if not want.entropy_grad:
        entropy_bits = entropy_bits.detach()
    check_finite(nll, logits_NV, target_N)
    expected = expected_rank(logits_NV) if want.expected_rank else None
    seq = torch.zeros_like(target_N) if seq_N is None else seq_N
    return Signals(nll, rank, is_top, entropy_bits, p_max, seq, logits_NV.shape[1], topk, sum_p2, above, expected)


@dataclass(frozen=True)
class RowPass:
    """The statistics of a chunk of logits, and the numbers its backward needs."""

    z: Tensor
    """[n, V] logits in the statistics' dtype, minus the row's maximum."""
    lnz: Tensor
    """ln sum exp z."""
    entropy: Tensor
    """Nats."""


def row_pass(logits_nV: Tensor) -> RowPass:
    """Shift a chunk by its row maxima and take log-partition and entropy."""
    z = logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32))
    z = z - z.amax(dim=1, keepdim=True)
    e = z.exp()
    total = e.sum(dim=1)
    # p log p = 0 at p = 0, also where z = -inf: the clamp keeps 0 * z at 0. Both terms of H are >= 0.
    weighted = e.mul_(z.clamp_min(torch.finfo(z.dtype).min)).sum(dim=1)
    return RowPass(z, total.log(), total.log() - weighted / total)


class _DenseSignals(torch.autograd.Function):
    """Signals of all rows, chunk by chunk; the backward computes each chunk's probabilities again."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, target_N: Tensor, want: Needs, rows: int) -> tuple[Tensor | None, ...]:
        parts = [
            _chunk_signals(logits_NV[i : i + rows], target_N[i : i + rows], want) for i in range(0, len(target_N), rows)
        ]
        out = [torch.cat(column) if column[0] is not None else None for column in zip(*parts, strict=True)]
        ctx.save_for_backward(logits_NV, target_N)
        ctx.rows = rows
        ctx.mark_non_differentiable(*(t for t in out[2:] if t is not None))
        return tuple(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_nll: Tensor, grad_bits: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        logits_NV, target_N = ctx.saved_tensors
        grad_NV = torch.empty_like(logits_NV)
        for i in range(0, len(target_N), ctx.rows):
            part = slice(i, i + ctx.rows)
            grad_NV[part] = _chunk_gradient(logits_NV[part], target_N[part], grad_nll[part], grad_bits[part])
        return grad_NV, None, None, None


def _chunk_signals(logits: Tensor, target: Tensor, want: Needs) -> tuple[Tensor | None, ...]:
    label = logits.gather(1, target[:, None])
    rank = (logits >= label).sum(dim=1)
    is_top = label[:, 0] == logits.amax(dim=1)
    stats = row_pass(logits)
    nll = stats.lnz - stats.z.gather(1, target[:, None])[:, 0]
    topk = sum_p2 = above = None
    if want.topk:
        head = stats.z.topk(min(want.topk, logits.shape[1]), dim=1).values
        topk = row_pass(head).entropy
    if want.sum_p2:
        sum_p2 = (2 * stats.z).exp().sum(dim=1) * torch.exp(-2 * stats.lnz)
    if want.mass_above:
        above = torch.where(logits > label, stats.z.exp(), 0).sum(dim=1) * torch.exp(-stats.lnz)
    # never below 0, rounding or not: the sum of e^z holds the 1 of the largest
    return nll, stats.entropy / LN2, rank, is_top, torch.exp(-stats.lnz), topk, sum_p2, above


def _chunk_gradient(logits: Tensor, target: Tensor, grad_nll: Tensor, grad_bits: Tensor) -> Tensor:
    """d nll = p - onehot; d H(nats) = -p (ln p + H)."""
    stats = row_pass(logits)
    ln_p = stats.z - stats.lnz[:, None]
    p = ln_p.exp()
    grad = p * grad_nll[:, None]
    if bool(grad_bits.any()):
        surprise = ln_p.clamp_min_(torch.finfo(p.dtype).min).add_(stats.entropy[:, None])
        grad -= surprise.mul_(p).mul_((grad_bits / LN2)[:, None])
    grad.scatter_add_(1, target[:, None], -grad_nll[:, None])
    return grad.to(logits.dtype)


# --- what can be wrong with the input ------------------------------------------------------------------------------


def check_rows(rows_NX: Tensor, target_N: Tensor, seq_N: Tensor | None, vocab_size: int | None = None) -> None:
    """Refuse rows and labels that do not fit; `vocab_size` where the rows are hidden states."""
    what = "logits" if vocab_size is None else "hidden states"
    if not rows_NX.is_floating_point():
        raise InputError(f"{what} are {rows_NX.dtype}; a float dtype was expected: pass the model's own output")
    if rows_NX.ndim != 2 or target_N.ndim != 1 or len(rows_NX) != len(target_N):
        raise InputError(
            f"{what} of shape {tuple(rows_NX.shape)} and labels of shape {tuple(target_N.shape)} do not fit: "
            "[N, ...] and [N] were expected, one row for each supervised token; align.supervised makes them"
        )
    if target_N.dtype not in (torch.int64, torch.int32):
        raise InputError(f"labels are {target_N.dtype}; int64 token ids were expected: labels.long()")
    if seq_N is not None and seq_N.shape != target_N.shape:
        raise InputError(f"seq has shape {tuple(seq_N.shape)}, labels {tuple(target_N.shape)}; they must be equal")
    if len(target_N) == 0:
        raise InputError("the batch is empty: no supervised token was given; skip it, or check how labels are masked")
    size = rows_NX.shape[1] if vocab_size is None else vocab_size
    low, high = (int(x) for x in torch.aminmax(target_N))
    if low < 0 or high >= size:
        raise InputError(
            f"label {low if low < 0 else high} is outside the vocabulary of {size}: labels from 0 to {size - 1} were "
            "expected; drop -100 and padding first (align.supervised); do tokenizer and model belong together?"
        )


def check_finite(nll_N: Tensor, logits_NV: Tensor, target_N: Tensor) -> None:
    """Refuse rows whose statistics are not finite, and say what is wrong with the first of them."""
    if bool(torch.isfinite(nll_N).all()):
        return
    row = int((~torch.isfinite(nll_N)).nonzero()[0])
    logits, label = logits_NV[row], int(target_N[row])
    if bool(torch.isnan(logits).any()):
        cause = f"logits hold NaN (first at token id {int(torch.isnan(logits).nonzero()[0])})"
    elif bool(torch.isposinf(logits).any()):
        cause = f"logits hold +inf (first at token id {int(torch.isposinf(logits).nonzero()[0])})"
    else:
        cause = f"the logit of its label {label} is {float(logits[label])}: a masked-out token cannot be a label"
    raise NonFiniteError(f"row {row} of {len(nll_N)}: {cause}; finite logits were expected: check the model's output")


# --- expected rank ------------------------------------------------------------------------------------------------


def expected_rank(logits_NV: Tensor) -> Tensor:
    """Return E[R] = sum_v p_v R_v for every row: the rank a label drawn from the model itself would have.

    Every token matters to it, the tail most of all, so the order of the whole row is needed; its values alone are
    sorted, without their indices. On a CPU NumPy does that with vector instructions, more than ten times as fast as
    torch.sort; other devices use torch.sort. The sums are taken in float64: E[R]-1 is right to 1e-6 of itself.

    Args:
        logits_NV: any float dtype, any device.

    Returns:
        [N], float64.
    """
    if logits_NV.ndim != 2 or not logits_NV.is_floating_point() or not logits_NV.shape[1]:
        raise InputError(
            f"logits of shape {tuple(logits_NV.shape)}, {logits_NV.dtype}: a float [N, V] was expected: pass the "
            "model's own output, one row for each token"
        )
    z_NV = logits_NV.detach()
    if z_NV.device.type == "cpu":
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # NumPy sorts without holding the interpreter's lock
            out = torch.tensor(list(pool.map(_expected_rank_of_row, z_NV)), dtype=torch.float64)
    else:
        rows = max(1, CHUNK_ELEMENTS // max(1, z_NV.shape[1]))
        out = torch.cat([_expected_rank_by_torch(z_NV[i : i + rows]) for i in range(0, max(1, len(z_NV)), rows)])
    if not bool(torch.isfinite(out).all()):
        row = int((~torch.isfinite(out)).nonzero()[0])
        raise NonFiniteError(
            f"row {row}: logits hold NaN or +inf, or are all -inf; finite ones were expected: check the model's output"
        )
    return out


def _expected_rank_of_row(z: Tensor) -> float:
    ascending = np.sort(z.to(torch.promote_types(z.dtype, torch.float32)).numpy())
    # Subtracted in float64: in float32 the difference of a tail of equal logits may be off by 1e-6, all the same way.
    e = ascending.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e -= e[-1]
    np.exp(e, out=e)
    # einsum, not @: a threaded BLAS would wait for the other rows' threads
    beyond = np.einsum("i,i->", e, np.arange(len(e) - 1.0, -1.0, -1.0))
    # Position i has R-1 = V-1-i, except in a tie, where all have that of the first. `tied` holds the positions whose
    # right neighbour is equal; in a run of n of them the missing places are 1 + 2 + ... + n.
    tied = np.flatnonzero(ascending[1:] == ascending[:-1])
    if len(tied):
        first = np.concatenate(([0], np.flatnonzero(np.diff(tied) != 1) + 1))
        n = np.diff(np.append(first, len(tied)))
        beyond += np.einsum("i,i->", e[tied[first]], n * (n + 1.0) / 2)
    return float(1 + beyond / e.sum())


def _expected_rank_by_torch(logits: Tensor) -> Tensor:
    ascending = logits.to(torch.promote_types(logits.dtype, torch.float32)).sort(dim=1).values
    e = (ascending.double() - ascending[:, -1:].double()).exp_()
    size = e.shape[1]
    # a tie has the rank of its first position: R - 1 = V - 1 - first
    first = torch.arange(size, device=e.device).expand(e.shape).clone()
    first[:, 1:].masked_fill_(ascending[:, 1:] == ascending[:, :-1], 0)
    first = first.cummax(dim=1).values
    return 1 + (e * (size - 1 - first)).sum(dim=1) / e.sum(dim=1)
