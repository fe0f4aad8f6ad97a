"""Attention that keeps flattened sequences apart, without a mask: each runs by itself.

A mask over T flattened positions costs T x T, most of it spent on pairs that are masked out. Here the boundaries are
read from `position_ids`, and each sequence goes through the causal kernel alone: exact, and linear in the batch.
It reaches the models through transformers' registry of attention functions, under the name `NAME`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ranktuner.errors import UnsupportedError

NAME = "ranktuner_apart"


def register() -> str:
    """Make `NAME` known to transformers; return it."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, _mask)
    return NAME


def _mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """Build a mask only where the batch is padded; flattened batches need none here."""
    from transformers.masking_utils import sdpa_mask

    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within each sequence of a flattened row; anything else goes to transformers' own sdpa.

    Args:
        module: the attention layer.
        query: [B, heads, T, d].
        key: [B, key-value heads, T, d].
        value: as key.
        attention_mask: given for padded batches and while generating; then there is nothing to keep apart.
        dropout: probability.
        scaling: of the scores; the kernel's default where None.
        kwargs: `position_ids` tells where sequences begin; `sliding_window` limits how far one looks back.

    Returns:
        ([B, T, heads, d], None).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    positions = kwargs.get("position_ids")
    whole = attention_mask is not None or key.shape[2] != query.shape[2] or kwargs.get("is_causal") is False
    if whole or positions is None:
        if not whole and module.training:
            raise UnsupportedError(
                f"{type(module).__name__} does not hand position_ids to its attention, so flattened sequences would "
                "see each other; set model.attention=sdpa"
            )
        out: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)[0]
        return out, None
    if kwargs.get("softcap") is not None:
        raise UnsupportedError(f"{type(module).__name__} caps its attention scores; set model.attention=eager")
    rows = [
        _apart(q, k, v, _lengths(p), dropout, scaling, kwargs.get("sliding_window"))
        for q, k, v, p in zip(query, key, value, positions.expand(len(query), -1), strict=True)
    ]
    return torch.stack(rows).transpose(1, 2).contiguous(), None


def _apart(
    q: Tensor, k: Tensor, v: Tensor, lengths: list[int], dropout: float, scaling: float | None, window: int | None
) -> Tensor:
    """Run each sequence of one row, [heads, T, d], through the causal kernel."""
    parts = []
    for qs, ks, vs in zip(*(torch.split(x, lengths, 1) for x in (q, k, v)), strict=True):
        n = qs.shape[1]
        mask = _window(n, window, qs.device) if window is not None and window < n else None
        parts.append(
            scaled_dot_product_attention(
                qs[None],
                ks[None],
                vs[None],
                attn_mask=mask,
                dropout_p=dropout,
                is_causal=mask is None,
                scale=scaling,
                enable_gqa=qs.shape[0] != ks.shape[0],
            )[0]
        )
    return torch.cat(parts, dim=1)


def _lengths(positions: Tensor) -> list[int]:
    """Return the lengths of the sequences whose positions these are: a new one begins wherever they do not go on."""
    breaks = (positions[1:] != positions[:-1] + 1).nonzero()[:, 0] + 1
    edges = [0, *breaks.tolist(), len(positions)]
    return [b - a for a, b in pairwise(edges)]


@lru_cache(maxsize=8)
def _window(n: int, window: int, device: torch.device) -> Tensor:
    at = torch.arange(n, device=device)
    back = at[:, None] - at
    return (back >= 0) & (back < window)
