"""What passes between the hooks of an attachment: the forward that is under way, the batch that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ranktuner.align import Aligned
from ranktuner.errors import InputError, UnsupportedError
from ranktuner.fused import Count
from ranktuner.registry import Method
from ranktuner.signals import Signals


@dataclass
class Armed:
    """What the pre-hook knows of one forward, until it is over."""

    labels: Tensor
    shifted: bool
    position_ids: Tensor | None
    seq_idx: Tensor | None
    weights: Tensor | None
    count: Count
    chosen: Method
    training: bool
    keep: bool = False
    value: Tensor | None = None
    probe: Tensor | None = None
    answered: bool = False


@dataclass
class Batch:
    """What the last forward saw: detached Signals and where each token stands."""

    signals: Signals
    aligned: Aligned


class NoLogits:
    """Stands where logits would be while a method is attached; any use says why there are none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and printing machinery looks for these
            raise AttributeError(name)
        raise UnsupportedError(
            f"outputs.logits.{name} was asked for, but an attached model keeps no logits in training: take "
            "outputs.loss and attachment.pop_metrics(), let the trainer not compute its own loss or metrics from "
            "logits, or detach() first"
        )

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__("item")


@dataclass(frozen=True)
class Scored:
    """Signals of a batch, and where each token stands."""

    signals: Signals
    row: Tensor
    """[N] row of the batch."""
    position: Tensor
    """[N] position in the row of the token that was predicted."""


def weights_of(armed: Armed, aligned: Aligned) -> Tensor:
    """The data's weights of the supervised tokens; [B, T] like the labels, so they are shifted with them."""
    assert armed.weights is not None
    if armed.weights.shape != armed.labels.shape:
        raise InputError(
            f"token_weights have shape {tuple(armed.weights.shape)}, labels {tuple(armed.labels.shape)}; one weight "
            "for each label was expected"
        )
    return armed.weights.reshape(-1)[aligned.index + (0 if armed.shifted else 1)]


def sequence_numbers(kwargs: Mapping[str, Any], labels: Tensor) -> Tensor | None:
    """Sequence numbers of a batch without padding: given, or from the cumulative lengths of flash attention."""
    if kwargs.get("seq_idx") is not None:
        return torch.as_tensor(kwargs["seq_idx"])
    ends = kwargs.get("cu_seq_lens_q")
    if ends is None or kwargs.get("position_ids") is not None:
        return None
    flat = torch.arange(labels.numel(), device=labels.device)
    return torch.bucketize(flat, ends[1:].to(flat), right=True).reshape(labels.shape)


def all_tokens(input_ids: Tensor, mask: Tensor | None) -> Tensor:
    """Labels for every token that the mask keeps, but for a first one after left padding: nothing real precedes it."""
    if mask is None or mask.ndim != 2:
        return input_ids
    before = torch.nn.functional.pad(mask[:, :-1], (1, 0), value=1)
    return input_ids.masked_fill((mask == 0) | (before == 0), -100)
