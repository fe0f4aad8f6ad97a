"""Which rows go into the backward products: all with a gradient, or those a gradient budget leaves.

A row's logit gradient has L1 norm exactly 2 w (1-p), so the share left out of the logit gradient's L1 mass is known.
The error in the weights' gradient is another thing: it is measured (benchmarks), not promised.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORTH_COPYING = 0.95
"""Without a budget, rows are moved only where at most this share of them has a gradient at all."""


def rows_that_count(nll: Tensor, w: Tensor, budget: float) -> tuple[Tensor, Tensor]:
    """Return the rows to keep, in order, and (mass left out, mass) of the chunk.

    A row's logit gradient has L1 norm 2 w (1-p). Rows with the smallest are left out while their sum stays within the
    budget; with budget 0 only rows without any gradient are.
    """
    mass = w.double().abs() * -torch.expm1(-nll.double())
    ordered, order = mass.sort()
    running = ordered.cumsum(0)
    # a prefix of the sorted rows; running sums are exact enough that a bound at d never lets more than d through
    dropped = int((running <= budget * running[-1]).sum()) if budget else int((ordered == 0).sum())
    kept = order[dropped:].sort().values
    left = running[dropped - 1] if dropped else running.new_zeros(())
    return kept, torch.stack([left, running[-1]])


def compact(logits: Tensor, kept: Tensor) -> Tensor:
    """Bring the kept rows to the front, in place, and return which row now stands where.

    Kept rows that already stand there stay; the others fill the gaps, so that as few rows as possible are copied.
    """
    k = len(kept)
    stay = torch.zeros(k, dtype=torch.bool, device=kept.device)
    stay[kept[kept < k]] = True
    gaps, movers = (~stay).nonzero()[:, 0], kept[kept >= k]
    index = torch.arange(k, device=kept.device)
    index[gaps] = movers
    for gap, mover in zip(torch.split(gaps, 64), torch.split(movers, 64), strict=True):
        logits[gap] = logits[mover]
    return index


def share_left_out(mass: list[Tensor], like: Tensor) -> Tensor:
    """Return the share over all chunks, from each chunk's (left out, whole)."""
    if not mass:
        return like.new_zeros((), dtype=torch.float64)
    left, whole = torch.stack(mass).sum(dim=0)
    share: Tensor = left / whole.clamp_min(torch.finfo(whole.dtype).tiny)
    return share
