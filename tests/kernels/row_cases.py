"""What every implementation of the row pass must give, on any device: checks that a test calls with its own."""

from __future__ import annotations

import drawn
import torch
from torch import Tensor
from written_out import DTYPES, HEADS, assert_same, fused, judged, problem, recomputed

from ranktuner.kernels import rows
from ranktuner.signals import Needs

LOW = [dtype for dtype in DTYPES if dtype != torch.float64]
VOCABULARIES = (2, 17, 37, 301)
ELEMENT = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest relative error of one gradient element: two units of a low dtype (Triton's interpreter truncates to bf16)."""


def hard_logits(vocab: int, dtype: torch.dtype, device: str = "cpu", count: int = 2) -> tuple[Tensor, Tensor]:
    """Rows of every nasty family: peaks, ties, -inf, ten thousands; labels have finite logits."""
    logits, target = drawn.tensors(drawn.rows(vocab, seed=vocab, count=count), dtype)
    return logits.to(device), target.to(device)


def check_sums(how: rows.Implementation, logits: Tensor, target: Tensor) -> None:
    """Against the same sums in float64."""
    label = logits.gather(1, target[:, None])
    top, total, weighted, rank = rows._SUMS[how](logits, label)
    want = rows._sums_whole(logits.double(), label.double())
    assert torch.equal(top.double(), want[0])
    assert torch.equal(rank.long(), want[3].long())
    for got, exact in ((total, want[1]), (weighted, want[2])):
        assert ((got.double() - exact).abs() <= 3e-6 * exact.abs().clamp_min(1e-3)).all()


def check_broken_rows(how: rows.Implementation, device: str = "cpu") -> None:
    """A NaN or +inf anywhere must reach the statistics; -inf everywhere has none; other rows stay what they are."""
    logits = torch.randn(6, 100, device=device)
    logits[0, 3], logits[1, 99], logits[2, 50], logits[3, :] = torch.nan, torch.nan, torch.inf, -torch.inf
    logits[4, :99] = -torch.inf
    target = torch.full((6,), 99, device=device)
    nll = rows.statistics(logits, target, Needs(), how).nll
    assert torch.isfinite(nll).tolist() == [False, False, False, False, True, True]
    assert nll[4] == 0


def check_gradient(how: rows.Implementation, logits: Tensor, target: Tensor) -> None:
    """Both terms, alone and together, with and without a softcap."""
    check_gradient_of(how, logits, target, None)
    # near saturation the slope 1 - (z/c)^2 is all rounding
    mild = logits.float().masked_fill(logits.isinf(), 0).abs().amax(dim=1) < 60
    if mild.any():
        capped = (torch.tanh(logits[mild].float() / 30) * 30).to(logits.dtype)
        check_gradient_of(how, capped, target[mild], 30.0)


def check_gradient_of(how: rows.Implementation, logits: Tensor, target: Tensor, softcap: float | None) -> None:
    """Against the same in float64, from the same statistics."""
    stats = rows.statistics(logits, target, Needs(), "plain")
    exact = rows.RowStats(**{k: v.double() for k, v in vars(stats).items() if v is not None})
    n = len(target)
    w = torch.rand(n, generator=torch.Generator().manual_seed(0)).to(logits.device)
    # e^(z - lse) keeps the absolute rounding of z and lse, which at ten thousand is large
    slack = 1 + stats.lse.abs()[:, None] / 16
    for w_nll, w_entropy in [(w, None), (w[:1].expand(n), None), (w, w.flip(0) - 0.5), (w * 0, w)]:
        got, want = logits.clone(), logits.double()
        rows.write_gradient(got, target, stats, w_nll, w_entropy, softcap, how)
        double = None if w_entropy is None else w_entropy.double()
        rows.write_gradient(want, target, exact, w_nll.double(), double, softcap, "plain")
        assert torch.isfinite(got).all()
        # where terms cancel, and below the normal numbers of the dtype, relative errors mean nothing
        scale = want.abs() + 1e-4 * want.abs().amax(dim=1, keepdim=True)
        off = (got.double() - want).abs() / scale.clamp_min(max(1e-7, torch.finfo(logits.dtype).smallest_normal))
        assert (off <= ELEMENT[logits.dtype] * slack).all(), (softcap, float(off.max()))


def check_paths(how: str, dtype: torch.dtype, head: str, spec: str, device: str = "cpu", chunk: int = 5) -> None:
    """Loss and gradients of both fused paths against those written out."""
    p = problem(37, 8, 17, dtype, device=device, **HEADS[head])  # type: ignore[arg-type]
    want = judged(p, spec)
    loose = 5e-3 if dtype is torch.float16 and not p.softcap else None
    assert_same(fused(p, spec, chunk, how), want, p, loose)
    assert_same(recomputed(p, spec, chunk, how), want, p, loose)
