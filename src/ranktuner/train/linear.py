"""Linear layers whose fp32 products come from oneDNN, on processors where torch's own run at half their width.

The same sums in another order: `kernels.products` says on which processors, and does it for the output head.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ranktuner.kernels.products import mkl_is_narrow, wide_product


def quicken(model: torch.nn.Module) -> int:
    """Give the model's linear layers, but for its output head, the faster product; return how many got it.

    Only modules that are `torch.nn.Linear` itself: what derives from it has a forward of its own.
    """
    if not mkl_is_narrow():
        return 0
    find_head: Any = getattr(model, "get_output_embeddings", lambda: None)
    head = getattr(find_head(), "weight", None)
    layers = [m for m in model.modules() if type(m) is torch.nn.Linear and m.weight is not head]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    return len(layers)


def _forward(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    plain = x.dtype != torch.float32 or layer.weight.dtype != torch.float32 or not x.numel() or x.device.type != "cpu"
    if plain or torch.is_autocast_enabled("cpu"):
        return torch.nn.functional.linear(x, layer.weight, layer.bias)
    out: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return out


class _Linear(torch.autograd.Function):
    """x @ weight.t() + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return wide_product(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        return (
            wide_product(rows, weight.t()).view(x.shape) if for_x else None,
            wide_product(rows.t(), x.reshape(-1, x.shape[-1]).t()) if for_weight else None,
            rows.sum(0) if for_bias else None,
        )
