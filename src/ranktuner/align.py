"""The only shift by one: labels [B, T] become the N supervised tokens. Masks, padding and -100 end here.

Legend: B sequences (rows), T positions, N supervised tokens.

Position t predicts the label at t+1. In a row that holds several sequences without padding, `position_ids` start again
at 0 with each; the first token of a sequence is then never a target, since nothing of its own sequence comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ranktuner.errors import InputError

IGNORE = -100


@dataclass(frozen=True)
class Aligned:
    """Which positions are supervised, and with what."""

    index: Tensor
    """[N] flat positions b*T + t whose prediction counts."""
    target: Tensor
    """[N] the token to be predicted there."""
    seq: Tensor
    """[N] the sequence it belongs to, numbered over the whole batch."""
    width: int
    """T."""

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, x_BTX: Tensor) -> Tensor:
        """Return the supervised rows of [B, T, ...] as [N, ...]."""
        return x_BTX.reshape(-1, *x_BTX.shape[2:])[self.index]

    @property
    def row(self) -> Tensor:
        """[N] row of the batch."""
        return self.index // self.width

    @property
    def position(self) -> Tensor:
        """[N] position in the row of the *predicted* token."""
        return self.index % self.width + 1


def supervised(
    labels_BT: Tensor,
    *,
    position_ids: Tensor | None = None,
    seq_idx: Tensor | None = None,
    shifted: bool = False,
    vocab_size: int | None = None,
) -> Aligned:
    """Return the supervised tokens of a batch.

    Args:
        labels_BT: token ids, -100 where nothing is learned (prompt, padding).
        position_ids: [B, T] or [1, T]; where they start again at 0, a new sequence begins.
        seq_idx: [B, T] sequence numbers, in place of position_ids.
        shifted: the labels are already one ahead (`shift_labels` of sequence parallelism): nothing is shifted here.
        vocab_size: labels at or above it are refused.
    """
    if labels_BT.ndim != 2:
        raise InputError(f"labels have shape {tuple(labels_BT.shape)}; [batch, positions] was expected")
    width = labels_BT.shape[1]
    seq = _sequences(labels_BT, position_ids, seq_idx)
    if shifted:
        target, seq_of_target = labels_BT, seq
    else:
        target = torch.nn.functional.pad(labels_BT[:, 1:], (0, 1), value=IGNORE)
        seq_of_target = torch.nn.functional.pad(seq[:, 1:], (0, 1), value=-1)
    keep = (target != IGNORE) & (seq_of_target == seq)
    index = keep.reshape(-1).nonzero()[:, 0]
    target_N = target.reshape(-1)[index]
    if vocab_size is not None and len(target_N):
        low, high = (int(x) for x in torch.aminmax(target_N))
        if low < 0 or high >= vocab_size:
            bad = ((target_N < 0) | (target_N >= vocab_size)).nonzero()[0, 0]
            where = int(index[bad])
            raise InputError(
                f"label {int(target_N[bad])} in row {where // width} at position {where % width + (not shifted)} is "
                f"outside the vocabulary of {vocab_size}; ids from 0 to {vocab_size - 1}, or {IGNORE} for nothing to "
                "learn, were expected: do tokenizer and model belong together?"
            )
    return Aligned(index, target_N, seq.reshape(-1)[index], width)


def _sequences(labels_BT: Tensor, position_ids: Tensor | None, seq_idx: Tensor | None) -> Tensor:
    rows, width = labels_BT.shape
    row = torch.arange(rows, device=labels_BT.device)[:, None]
    if seq_idx is not None:
        if seq_idx.shape != labels_BT.shape:
            raise InputError(f"seq_idx has shape {tuple(seq_idx.shape)}, labels {tuple(labels_BT.shape)}")
        inside = seq_idx.to(torch.int64)
        return inside + row * (inside.max() + 1 if inside.numel() else 1)
    if position_ids is None:
        return row.expand(rows, width)
    if position_ids.ndim != 2 or position_ids.shape[1] != width or position_ids.shape[0] not in (1, rows):
        raise InputError(
            f"position_ids have shape {tuple(position_ids.shape)}; ({rows}, {width}) or (1, {width}) was expected"
        )
    # 0 begins a sequence, except inside left padding, where 0s or 1s follow each other: there a new number does no harm
    starts = (position_ids == 0).expand(rows, width).clone()
    starts[:, 0] = True
    return starts.reshape(-1).cumsum(0).reshape(rows, width) - 1
