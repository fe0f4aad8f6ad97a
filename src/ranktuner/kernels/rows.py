"""The row pass: what is done to a chunk of logits between the matrix products. Two sweeps, each in one function.

    statistics(logits, target)            reads the logits once
    write_gradient(logits, ..., w)        reads them once more and writes w (p - onehot) over them

Three implementations give the same numbers: `plain` (blocks of rows that stay in the cache, any device), `compiled`
(torch.compile, one sweep; some 20 s to build, 3 s from its cache, so that only long runs earn it) and `triton` (GPUs).

Legend: n rows of the chunk, V vocabulary. Statistics are in fp32 (float64 for float64 logits), entropy in nats here.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from ranktuner.errors import InputError, UnsupportedError, nearest
from ranktuner.signals import Needs, expected_rank, row_pass

log = logging.getLogger("ranktuner")

Implementation = Literal["plain", "compiled", "triton"]
Sums = tuple[Tensor, Tensor, Tensor, Tensor]
BLOCK_ELEMENTS = 1 << 18
"""A block of the plain pass on a CPU: 1 MiB in fp32, so that a dozen operations on it stay in the cache."""
BLOCK_ELEMENTS_ELSEWHERE = 1 << 25
"""On other devices 128 MiB: starting an operation must cost less than the operation."""
EARN_COMPILATION = 3_000_000_000
"""Logits after which compiling has paid: the plain pass takes some 10 ns a logit on two cores, compiling about 20 s."""


@dataclass(frozen=True)
class RowStats:
    """What one sweep over a chunk of logits gives; all [n]."""

    nll: Tensor
    lse: Tensor
    """ln sum exp of the logits."""
    rank: Tensor
    is_top: Tensor
    entropy: Tensor
    """Nats."""
    p_max: Tensor
    label_logit: Tensor
    topk_entropy: Tensor | None = None
    sum_p2: Tensor | None = None
    mass_above: Tensor | None = None
    expected_rank: Tensor | None = None


# --- which implementation ------------------------------------------------------------------------------------------

_seen = {"logits": 0}
_announced: set[str] = set()


def choose(logits: Tensor, wanted: str | None = None) -> Implementation:
    """Return the implementation for this chunk, and say once which one runs and why.

    Args:
        logits: the chunk.
        wanted: `plain`, `compiled`, `triton` or `auto`; default: the environment's RANKTUNER_ROWS, else `auto`, that
            is `triton` on CUDA, else `plain` until a run has had enough logits to earn the compilation.
    """
    wanted = wanted or os.environ.get("RANKTUNER_ROWS", "auto")
    if wanted not in ("auto", "plain", "compiled", "triton"):
        raise InputError(f"row pass {wanted!r} is unknown; {nearest(wanted, ('auto', 'plain', 'compiled', 'triton'))}")
    _seen["logits"] += logits.numel()
    if wanted == "auto":
        return _automatic(logits)
    if wanted == "triton":
        _check_triton(logits)
    return _suited(wanted, logits)  # type: ignore[arg-type]


def _suited(name: Implementation, logits: Tensor) -> Implementation:
    # float64 is the reference's dtype; one row would be specialised into a compilation of its own
    if logits.dtype == torch.float64 or (name == "compiled" and logits.shape[0] < 2):
        return "plain"
    return name


def _check_triton(logits: Tensor) -> None:
    """Refuse the Triton kernels where they cannot run."""
    if not _has_triton():
        raise UnsupportedError(
            "the Triton row pass needs the package 'triton', which is not installed: pip install triton, or leave the "
            "choice to RANKTUNER_ROWS=auto"
        )
    from ranktuner.kernels.triton_rows import interpreted

    if not logits.is_cuda and not interpreted():
        raise UnsupportedError(
            f"the Triton row pass runs on CUDA devices, and these logits are on {logits.device.type}: use "
            "RANKTUNER_ROWS=auto; or, to try the kernels slowly without a GPU, set TRITON_INTERPRET=1 in the "
            "environment before Python starts"
        )


def _automatic(logits: Tensor) -> Implementation:
    if logits.dtype == torch.float64:
        return "plain"
    if logits.is_cuda:
        if _has_triton():
            return _say("triton", "a CUDA device")
        return _say("plain", "a CUDA device without the package triton")
    if logits.device.type != "cpu":
        return _say("plain", f"no kernel for {logits.device.type}")
    if not _has_compiler():
        return _say("plain", "no C++ compiler was found; with one (g++), long runs are faster")
    if _seen["logits"] < EARN_COMPILATION:
        return _say("plain", "short runs do not earn the compilation; RANKTUNER_ROWS=compiled has it at once")
    if not _compiles():
        return _say("plain", "torch.compile does not work here")
    return _suited(_say("compiled", "this run is long enough"), logits)


def _say(name: Implementation, why: str) -> Implementation:
    if name not in _announced:
        _announced.add(name)
        log.info("row pass: %s (%s)", name, why)
    return name


@cache
def _has_compiler() -> bool:
    return shutil.which(os.environ.get("CXX", "g++")) is not None


@cache
def _compiles() -> bool:
    """Whether torch.compile really works here: headers or a linker can be missing where a compiler is there."""
    try:
        torch.compile(torch.neg)(torch.ones(8))
    except (RuntimeError, OSError) as error:  # what dynamo, inductor and the C++ compiler raise
        log.warning("torch.compile failed, so the plain row pass stays in use: %s", str(error).strip()[:300])
        return False
    return True


@cache
def _has_triton() -> bool:
    from importlib.util import find_spec

    return find_spec("triton") is not None


# --- sweep one: statistics -----------------------------------------------------------------------------------------


def statistics(logits: Tensor, target: Tensor, needs: Needs, implementation: Implementation) -> RowStats:
    """Return the statistics of a chunk; the extra signals come from a second, plain reading, only where asked for."""
    label_logit = logits.gather(1, target[:, None])
    sums = _SUMS[implementation](logits, label_logit)
    top, total, weighted, rank = sums
    label = label_logit[:, 0].to(total.dtype)
    ln_total = total.log()
    stats = RowStats(
        nll=(ln_total - (label - top)).clamp_min(0),
        lse=top + ln_total,
        rank=rank.to(torch.int64),
        is_top=label == top,
        entropy=(ln_total - weighted / total).clamp_min(0),
        p_max=total.reciprocal(),
        label_logit=label,
    )
    return stats if needs == Needs(entropy_grad=needs.entropy_grad) else _with_extras(stats, logits, label_logit, needs)


def _block_rows(logits: Tensor) -> int:
    elements = BLOCK_ELEMENTS if logits.device.type == "cpu" else BLOCK_ELEMENTS_ELSEWHERE
    return max(1, elements // logits.shape[1])


def _sums_whole(logits: Tensor, label_logit: Tensor) -> Sums:
    """Top logit, sum e^x, sum x e^x with x = z - top, and how many logits are at least the label's."""
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = z.amax(dim=1)
    x = (z - top[:, None]).clamp_min(-1e30)  # -inf times 0 would be NaN
    e = x.exp()
    return top, e.sum(dim=1), (e * x).sum(dim=1), (z >= label_logit.to(z.dtype)).sum(dim=1, dtype=torch.int32)


def _sums_plain(logits: Tensor, label_logit: Tensor) -> Sums:
    rows = _block_rows(logits)
    blocks = [
        _sums_whole(*block) for block in zip(torch.split(logits, rows), torch.split(label_logit, rows), strict=True)
    ]
    top, total, weighted, rank = (torch.cat(column) for column in zip(*blocks, strict=True))
    return top, total, weighted, rank


def _sums_compiled(logits: Tensor, label_logit: Tensor) -> Sums:
    sums: Sums = _compiled(_sums_whole)(_dynamic(logits), _dynamic(label_logit))
    return sums


def _sums_triton(logits: Tensor, label_logit: Tensor) -> Sums:
    from ranktuner.kernels.triton_rows import sums

    return sums(logits, label_logit)


_SUMS: dict[str, Callable[[Tensor, Tensor], Sums]] = {
    "plain": _sums_plain,
    "compiled": _sums_compiled,
    "triton": _sums_triton,
}


def _with_extras(stats: RowStats, logits: Tensor, label_logit: Tensor, needs: Needs) -> RowStats:
    """Add the signals that few methods read, by blocks of rows."""
    rows = _block_rows(logits)
    topk, squares, above = [], [], []
    for i in range(0, logits.shape[0], rows):
        block, label, lse = (t[i : i + rows] for t in (logits, label_logit, stats.lse))
        if needs.topk:
            head = block.topk(min(needs.topk, block.shape[1]), dim=1).values
            topk.append(row_pass(head).entropy.clamp_min(0))
        if needs.sum_p2 or needs.mass_above:
            p = (block.to(lse.dtype) - lse[:, None]).exp_()
            above.append(torch.where(block > label, p, 0).sum(dim=1))
            squares.append(p.square_().sum(dim=1))
    return RowStats(
        **{k: v for k, v in vars(stats).items() if v is not None},
        topk_entropy=torch.cat(topk) if needs.topk else None,
        sum_p2=torch.cat(squares) if needs.sum_p2 else None,
        mass_above=torch.cat(above) if needs.mass_above else None,
        expected_rank=expected_rank(logits) if needs.expected_rank else None,
    )


# --- sweep two: the gradient, in place -----------------------------------------------------------------------------


def write_gradient(
    logits: Tensor,
    target: Tensor,
    stats: RowStats,
    w_nll: Tensor,
    w_entropy: Tensor | None,
    softcap: float | None,
    implementation: Implementation,
) -> None:
    """Write d(sum w_nll nll + w_entropy H)/d(logits) over the logits; H in nats.

    d nll = p - onehot, d H = -p (ln p + H). With a softcap the slope 1 - (z/c)^2 of the cap is multiplied in. The
    label's own element is computed apart, from nll: as a difference of two rounded numbers it would be lost in bf16.
    """
    _GRADIENT[implementation](logits, stats.lse, w_nll, w_entropy, stats.entropy, softcap)
    label = w_nll * torch.expm1(-stats.nll)
    if w_entropy is not None:
        label = label - w_entropy * torch.exp(-stats.nll) * (stats.entropy - stats.nll)
    if softcap is not None:
        label = label * (1 - (stats.label_logit / softcap) ** 2)
    # not scatter_: in bf16 on a CPU that takes as long as a matrix product
    logits[torch.arange(len(target), device=target.device), target] = label.to(logits.dtype)


def _gradient_whole(
    logits: Tensor, lse: Tensor, w_nll: Tensor, w_entropy: Tensor | None, entropy: Tensor, softcap: float | None
) -> None:
    z = logits.to(lse.dtype)
    ln_p = z - lse[:, None]
    grad = ln_p.exp() * w_nll[:, None]
    if w_entropy is not None:
        surprise = ln_p.clamp_min(-1e30) + entropy[:, None]
        grad = grad - surprise * ln_p.exp() * w_entropy[:, None]
    if softcap is not None:
        grad = grad * (1 - (z / softcap) ** 2)
    logits.copy_(grad)


def _gradient_plain(
    logits: Tensor, lse: Tensor, w_nll: Tensor, w_entropy: Tensor | None, entropy: Tensor, softcap: float | None
) -> None:
    rows = _block_rows(logits)
    for i in range(0, logits.shape[0], rows):
        part = slice(i, i + rows)
        w = None if w_entropy is None else w_entropy[part]
        _gradient_whole(logits[part], lse[part], w_nll[part], w, entropy[part], softcap)


def _gradient_compiled(
    logits: Tensor, lse: Tensor, w_nll: Tensor, w_entropy: Tensor | None, entropy: Tensor, softcap: float | None
) -> None:
    # contiguous: an expanded gradient (that of nll.sum()) has stride 0 and would be compiled anew
    vectors = [None if v is None else _dynamic(v.contiguous()) for v in (lse, w_nll, w_entropy, entropy)]
    _compiled(_gradient_whole)(_dynamic(logits), *vectors, softcap)


def _gradient_triton(
    logits: Tensor, lse: Tensor, w_nll: Tensor, w_entropy: Tensor | None, entropy: Tensor, softcap: float | None
) -> None:
    from ranktuner.kernels.triton_rows import gradient

    gradient(logits, lse, w_nll, w_entropy, entropy, softcap)


_GRADIENT: dict[str, Callable[..., None]] = {
    "plain": _gradient_plain,
    "compiled": _gradient_compiled,
    "triton": _gradient_triton,
}


# --- compilation ------------------------------------------------------------------------------------------------------


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one sweep; compiled anew only for another dtype, vocabulary or set of terms."""
    return torch.compile(function, dynamic=None)


def _dynamic(x: Tensor) -> Tensor:
    """Mark the number of rows as one that changes: every chunk size then runs the same code."""
    torch._dynamo.mark_dynamic(x, 0)
    return x
