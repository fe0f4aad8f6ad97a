"""The matrix products: logits of a chunk from the head, and the gradients that go back through it.

Legend: N supervised tokens, n those of a chunk, D hidden, V vocabulary.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ranktuner.errors import InputError

BLOCK_ROWS = 4096
"""Rows of the head whose gradient is added at a time: the product's temporary stays small, and in the cache."""
BLOCK_BYTES = 4 << 20
"""Of an fp32 product that is made in blocks."""
MEMORY_FLOOR = 64 << 20
MEMORY_FLOOR_CUDA = 256 << 20
"""On a GPU a chunk costs some 60 launches whatever its size."""
MEMORY_CEILING = 1 << 30


@dataclass(frozen=True)
class Head:
    """How hidden states become logits: softcap(scale * (hidden @ weight.T + bias))."""

    weight: Tensor
    """[V, D]."""
    bias: Tensor | None = None
    softcap: float | None = None
    """c tanh(z/c), applied after the scale."""
    scale: float = 1.0

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.weight.shape[0]

    def check(self, hidden_ND: Tensor) -> None:
        """Refuse shapes and settings that do not fit."""
        if self.weight.ndim != 2:
            raise InputError(
                f"the head's weight has shape {tuple(self.weight.shape)}; [vocabulary, hidden] was expected"
            )
        if hidden_ND.ndim != 2 or hidden_ND.shape[1] != self.weight.shape[1]:
            raise InputError(
                f"hidden states of shape {tuple(hidden_ND.shape)} do not fit a head of shape "
                f"{tuple(self.weight.shape)}: [N, {self.weight.shape[1]}] was expected"
            )
        if self.bias is not None and self.bias.shape != self.weight.shape[:1]:
            raise InputError(f"the head's bias has shape {tuple(self.bias.shape)}; ({self.vocab_size},) was expected")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise InputError(f"softcap is {self.softcap}; a finite number above 0, or None, was expected")
        if not math.isfinite(self.scale) or self.scale == 0:
            raise InputError(f"the logit scale is {self.scale}; a finite number other than 0 was expected")

    def cast(self, dtype: torch.dtype) -> Head:
        """Return the head in another dtype."""
        bias = None if self.bias is None else self.bias.to(dtype)
        return replace(self, weight=self.weight.to(dtype), bias=bias)

    def logits(self, hidden_nD: Tensor, out_nV: Tensor) -> Tensor:
        """Write the chunk's logits into `out_nV`, each step rounded to its dtype, as the model's own forward does."""
        if self.bias is None:
            multiply(hidden_nD, self.weight.t(), out_nV)
        else:
            torch.addmm(self.bias, hidden_nD, self.weight.t(), out=out_nV)
        if self.scale != 1.0:
            out_nV.mul_(self.scale)
        if self.softcap is not None:
            out_nV.div_(self.softcap).tanh_().mul_(self.softcap)
        return out_nV


def common_dtype(hidden_ND: Tensor, weight_VD: Tensor) -> torch.dtype:
    """Return the dtype of the products: autocast's where it is on, else what the model itself would compute in."""
    device = hidden_ND.device.type
    if torch.is_autocast_enabled(device) and hidden_ND.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    if hidden_ND.dtype != weight_VD.dtype:
        raise InputError(
            f"hidden states are {hidden_ND.dtype}, the head {weight_VD.dtype}: cast one of them, or run under autocast"
        )
    return hidden_ND.dtype


def chunk_rows(n: int, head: Head, chunk: int | None) -> int:
    """Return how many rows a chunk has: the chunk's logits take no more than the head's own gradient in fp32.

    That bound lies between 64 MiB (256 MiB on a GPU) and 1 GiB, holds at least 32 rows, and the rows are dealt out
    evenly. A larger chunk saves additions to the head's gradient: their share of the products falls as 1/rows.
    """
    if chunk is not None:
        if chunk < 1:
            raise InputError(f"chunk is {chunk}; a number of rows of at least 1 was expected")
        return min(chunk, max(n, 1))
    floor = MEMORY_FLOOR_CUDA if head.weight.is_cuda else MEMORY_FLOOR
    bound = min(max(head.weight.numel() * 4, floor), MEMORY_CEILING)
    most = max(32, bound // (head.vocab_size * head.weight.element_size()))
    chunks = max(1, -(-n // most))
    return max(1, -(-n // chunks))


class HeadGradient:
    """Sums the gradients of weight and bias over chunks, in fp32 (float64 for float64)."""

    def __init__(self, head: Head, *, weight: bool, bias: bool, chunks: int) -> None:
        dtype = torch.promote_types(head.weight.dtype, torch.float32)
        # With one chunk there is nothing to sum: the product is the gradient, rounded once.
        exact = head.weight.dtype if chunks == 1 else dtype
        self.weight = buffer(head.weight.shape, exact, head.weight.device) if weight else None
        self.bias = torch.zeros(head.vocab_size, dtype=dtype, device=head.weight.device) if bias else None
        self._first = True
        self._part = torch.empty(0)
        if self.weight is not None and self.weight.dtype != head.weight.dtype and not _mixes(self.weight):
            rows = min(BLOCK_ROWS, head.vocab_size)
            self._part = torch.empty((rows, head.weight.shape[1]), dtype=head.weight.dtype, device=head.weight.device)

    def add(self, grad_nV: Tensor, hidden_nD: Tensor) -> None:
        """Add one chunk."""
        if self.bias is not None:
            self.bias += grad_nV.sum(dim=0, dtype=self.bias.dtype)
        if self.weight is None:
            return
        if self.weight.dtype == grad_nV.dtype:
            multiply(grad_nV.t(), hidden_nD, self.weight, add=not self._first)
        elif _mixes(self.weight):
            # Summed in fp32 and never rounded on the way; beta = 0 does not read what it finds.
            beta = 0 if self._first else 1
            torch.addmm(self.weight, grad_nV.t(), hidden_nD, beta=beta, out_dtype=self.weight.dtype, out=self.weight)
        else:
            self._add_rounded(self.weight, grad_nV, hidden_nD)
        self._first = False

    def result(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the sums; zero where no chunk had anything to add."""
        if self._first and self.weight is not None:
            self.weight.zero_()
        return self.weight, self.bias

    def _add_rounded(self, total: Tensor, grad_nV: Tensor, hidden_nD: Tensor) -> None:
        # Without a mixed product: block products in the low dtype, added in fp32 while in the cache.
        for i in range(0, total.shape[0], BLOCK_ROWS):
            rows = total[i : i + BLOCK_ROWS]
            part = torch.mm(grad_nV[:, i : i + BLOCK_ROWS].t(), hidden_nD, out=self._part[: rows.shape[0]])
            if self._first:
                rows.copy_(part)
            else:
                for small, small_part in zip(torch.split(rows, 1024), torch.split(part, 1024), strict=True):
                    small.add_(small_part.to(total.dtype))


def multiply(a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> Tensor:
    """Write a @ b into `out`, or add it.

    Plain torch, but for fp32 on processors where MKL, which torch calls for it, keeps to half the width of their
    registers: there oneDNN is asked, block by block, since it cannot write into memory it is given.
    """
    if not (a.dtype == torch.float32 and a.device.type == "cpu" and mkl_is_narrow()):
        return out.addmm_(a, b) if add else torch.mm(a, b, out=out)
    # Blocks of rows, or of columns where those of b lie together: of others oneDNN takes a hundred times as long.
    wide = out.shape[1] > out.shape[0] and b.stride(0) == 1
    step = max(1, BLOCK_BYTES // (4 * max(out.shape[not wide], 1)))
    for i in range(0, out.shape[wide], step):
        block = slice(i, i + step)
        rows, columns = (slice(None), block) if wide else (block, slice(None))
        part = wide_product(a[rows], b[:, columns].t())
        target = out[rows, columns]
        target.add_(part) if add else target.copy_(part)
    return out


def wide_product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a @ b.t() + bias by oneDNN, for where `mkl_is_narrow`."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return out


@functools.cache
def mkl_is_narrow() -> bool:
    """Whether fp32 products run at half speed: MKL takes 512-bit instructions on Intel's processors only."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    wide = "avx512f" in about and "GenuineIntel" not in about
    return wide and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _mixes(total: Tensor) -> bool:
    """Whether the device multiplies in a low dtype and adds to fp32 in one product: only CUDA does."""
    return total.is_cuda and torch.version.hip is None


def scaled(gradient: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return factor * gradient in a dtype; in place where the dtype is the gradient's own.

    The factor stays in fp32: rounded to bf16 it would put every element off by the same share, up to 0.4 %.
    """
    if gradient.dtype == dtype and dtype.itemsize >= 4:
        return gradient.mul_(factor.to(dtype))
    wide = torch.promote_types(gradient.dtype, torch.float32)
    out = gradient if gradient.dtype == dtype else buffer(gradient.shape, dtype, gradient.device)
    # One element, not none: a scalar would be rounded to the gradient's dtype first.
    factor = factor.to(wide).reshape(1)
    if gradient.is_cuda:
        return torch.mul(gradient, factor, out=out)  # converts as it reads and writes; a CPU would make copies
    for target, block in zip(torch.split(out, 1024), torch.split(gradient, 1024), strict=True):
        target.copy_(block.to(wide) * factor)
    return out


def buffer(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uninitialised memory; on a CPU in huge pages where the system has them.

    Fresh memory in small pages costs as much as reading it ten times: at 100 MB, 25 ms against 4. NumPy asks for huge
    pages, torch's CPU allocator does not.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    raw = np.empty(math.prod(shape), dtype=f"i{dtype.itemsize}")  # NumPy has no bf16; integers of its size hold it
    return torch.from_numpy(raw).view(dtype).view(shape)
