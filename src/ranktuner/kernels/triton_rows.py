"""The row pass as two Triton kernels, for GPUs: one reads a chunk's logits for the statistics, one writes the gradient.

The contract is that of `rows._sums_whole` and `rows._gradient_whole`, which say what the numbers are. Imported only
where it is asked for. With TRITON_INTERPRET=1 in the environment before Triton is imported, the same code runs on a
CPU, element by element: slow, and how its tests run where no GPU is.

Legend: n rows of the chunk, V vocabulary. Logits are bf16, fp16 or fp32; all arithmetic is fp32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from ranktuner.kernels.rows import Sums

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TILE = 4096
"""Logits a program of the gradient holds at a time; a power of 2. With 8 warps, 16 a thread."""
WARPS = 8
LANES = 1024
"""Running maxima and sums that a program of the statistics keeps; a power of 2."""
DEPTH = 8
"""Logits a lane takes at a time. A larger maximum rescales a lane's sums once for all of them, and lanes meet only at
the end of the row: with one maximum for all, the meeting of the warps took longer than the reading."""
STATISTICS_WARPS = 4


@triton.jit
def _take(z, label, high, totals, weights, counts):  # type: ignore[no-untyped-def]  # Triton compiles annotations too
    """Take [DEPTH, LANES] logits into each lane's maximum, sums and count."""
    new_high = tl.maximum(high, tl.max(z, axis=0))
    # While every logit is -inf the maximum is too, and -inf - -inf would be NaN.
    origin = tl.where(new_high == -float("inf"), 0.0, new_high)
    # x grows by `step` for all that came before: sum (x + step) e^(x + step) = e^step (weights + step totals)
    step = tl.maximum(high - origin, -1e30)
    rescale = tl.exp(step)
    x = z - origin[None, :]
    e = tl.exp(x)
    weights = rescale * (weights + step * totals) + tl.sum(e * tl.maximum(x, -1e30), axis=0)  # -inf times 0: NaN
    totals = rescale * totals + tl.sum(e, axis=0)  # takes the NaN of a NaN logit along: a maximum does not
    return new_high, totals, weights, counts + tl.sum(tl.where(z >= label, 1, 0), axis=0)


@triton.jit  # type: ignore[untyped-decorator]  # Triton is not typed
def _statistics(  # type: ignore[no-untyped-def]
    logits,
    label_logit,
    top,
    total,
    weighted,
    rank,
    stride,
    V,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """One row: maximum, sum e^x, sum x e^x with x = z - maximum, and count of z >= the label's."""
    row = tl.program_id(0).to(tl.int64)  # row * stride passes 2^31 in large chunks
    column = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    label = tl.load(label_logit + row).to(tl.float32)
    high = tl.full([LANES], -float("inf"), dtype=tl.float32)
    totals = tl.zeros([LANES], dtype=tl.float32)
    weights = tl.zeros([LANES], dtype=tl.float32)
    counts = tl.zeros([LANES], dtype=tl.int32)
    place = logits + row * stride + column
    whole = V // (DEPTH * LANES) * (DEPTH * LANES)
    for start in range(0, whole, DEPTH * LANES):
        z = tl.load(place + start).to(tl.float32)
        high, totals, weights, counts = _take(z, label, high, totals, weights, counts)
    if whole < V:
        z = tl.load(place + whole, mask=whole + column < V, other=-float("inf")).to(tl.float32)
        # What is not there is -inf, which would count where the label's logit is -inf too.
        beyond = tl.sum(tl.where((whole + column >= V) & (z >= label), 1, 0), axis=0)
        high, totals, weights, counts = _take(z, label, high, totals, weights, counts - beyond)
    # The lanes meet: each lane's sums move to the maximum of all.
    all_high = tl.max(high, axis=0)
    step = tl.maximum(high - tl.where(all_high == -float("inf"), 0.0, all_high), -1e30)
    rescale = tl.exp(step)
    tl.store(top + row, all_high)
    tl.store(total + row, tl.sum(rescale * totals, axis=0))
    tl.store(weighted + row, tl.sum(rescale * (weights + step * totals), axis=0))
    tl.store(rank + row, tl.sum(counts, axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _gradient(  # type: ignore[no-untyped-def]
    logits,
    lse,
    w_nll,
    w_entropy,
    entropy,
    stride,
    V,
    SOFTCAP: tl.constexpr,
    WITH_ENTROPY: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile of one row: w p, minus w_entropy p (ln p + H), times the softcap's slope, over the logits."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = column < V
    place = logits + row * stride + column
    z = tl.load(place, mask=there, other=-float("inf")).to(tl.float32)
    ln_p = z - tl.load(lse + row)
    p = tl.exp(ln_p)
    grad = p * tl.load(w_nll + row)
    if WITH_ENTROPY:
        surprise = tl.maximum(ln_p, -1e30) + tl.load(entropy + row)  # -inf times 0 would be NaN
        grad -= surprise * p * tl.load(w_entropy + row)
    if SOFTCAP is not None:
        share = z / SOFTCAP
        grad *= 1 - share * share
    tl.store(place, grad.to(logits.dtype.element_ty), mask=there)


def sums(logits: Tensor, label_logit: Tensor) -> Sums:
    """Return what `rows._sums_whole` returns: top logit, sum e^x, sum x e^x with x = z - top, and rank.

    Args:
        logits: [n, V].
        label_logit: [n, 1].
    """
    n, V = _sizes(logits)
    lanes = min(LANES, int(triton.next_power_of_2(V)))
    depth = min(DEPTH, int(triton.next_power_of_2(triton.cdiv(V, lanes))))
    top, total, weighted = (torch.empty(n, dtype=torch.float32, device=logits.device) for _ in range(3))
    rank = torch.empty(n, dtype=torch.int32, device=logits.device)
    if n:
        with _on(logits):
            _statistics[(n,)](
                logits, label_logit.contiguous(), top, total, weighted, rank, logits.stride(0), V,
                DEPTH=depth, LANES=lanes, num_warps=STATISTICS_WARPS, enable_fp_fusion=True,
            )  # fmt: skip
    return top, total, weighted, rank


def gradient(
    logits: Tensor, lse: Tensor, w_nll: Tensor, w_entropy: Tensor | None, entropy: Tensor, softcap: float | None
) -> None:
    """Write what `rows._gradient_whole` writes over the logits: the gradient but for the label's own element."""
    n, V = _sizes(logits)
    if not n:
        return
    tile = min(TILE, int(triton.next_power_of_2(V)))
    # An expanded gradient (that of nll.sum()) has stride 0: the kernel reads rows one after the other.
    columns = [lse if v is None else v.contiguous() for v in (lse, w_nll, w_entropy, entropy)]
    assert all(v.dtype == torch.float32 for v in columns), "statistics and weights of these logits are fp32"
    with _on(logits):
        _gradient[(n, triton.cdiv(V, tile))](
            logits, *columns, logits.stride(0), V,
            SOFTCAP=softcap, WITH_ENTROPY=w_entropy is not None, TILE=tile, num_warps=WARPS, enable_fp_fusion=True,
        )  # fmt: skip


def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter, which is decided when Triton is imported."""
    return not isinstance(_statistics, triton.JITFunction)


def _on(logits: Tensor) -> AbstractContextManager[object]:
    # Triton launches on the current device, wherever the tensors are.
    return torch.cuda.device(logits.device) if logits.is_cuda else nullcontext()


def _sizes(logits: Tensor) -> tuple[int, int]:
    assert logits.dtype in DTYPES, logits.dtype
    assert logits.ndim == 2, logits.shape
    assert logits.stride(1) == 1, "the vocabulary must be contiguous"
    return logits.shape[0], logits.shape[1]
