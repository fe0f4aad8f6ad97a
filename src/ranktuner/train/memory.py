"""What a run will hold in memory, estimated from the model's configuration before its weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

GIB = 2**30
CPU_TOKENS = 4096
"""Tokens of one forward pass on a CPU: large enough for full matrix products, small enough for its caches."""
GPU_SHARE = 0.85
"""Share of free GPU memory that the plan fills; fragmentation takes the rest."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that memory depends on."""

    parameters: int
    trainable: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int

    @property
    def activation_bytes(self) -> int:
        """Bytes kept for backward for one token in one layer, two bytes a number.

        About 14 tensors as wide as the hidden state (norms, attention in and out, residuals) and 4 as wide as the MLP.
        """
        return 2 * (14 * self.hidden + 4 * self.intermediate)


@dataclass(frozen=True)
class Storage:
    """In what form one process holds the model."""

    bf16: bool = False
    quantized: bool = False
    shards: int = 1


@dataclass(frozen=True)
class Memory:
    """The estimate, in bytes for one process."""

    weights: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.optimizer + self.activations


def model_shape(config: Any, lora_rank: int = 0) -> Shape:
    """Return the sizes of a model from its configuration: the parameters are counted on an empty model."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    total = sum(p.numel() for p in model.parameters())
    trainable = total
    if lora_rank:
        head = model.get_output_embeddings()
        linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
        trainable = sum(lora_rank * (m.in_features + m.out_features) for m in linear)
    text = config.get_text_config()
    return Shape(
        parameters=total,
        trainable=trainable,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        vocabulary=text.vocab_size,
    )


def estimate(shape: Shape, tokens: int, storage: Storage, checkpointing: bool) -> Memory:
    """Return what one process holds with micro-batches of `tokens` tokens.

    Weights are fp32 when they are trained (bf16 beside adapters, half a byte when quantized), gradients and AdamW's two
    moments fp32. No logits are kept: the head works in chunks.
    """
    frozen = shape.trainable < shape.parameters
    bf16, shards = storage.bf16, storage.shards
    width = 0.5 if storage.quantized else 2 if bf16 and frozen else 4
    weights = int(shape.parameters * width) + (4 * shape.trainable if frozen else 0)
    state = 12 * shape.trainable
    per_token = shape.activation_bytes * (1 if bf16 else 2)
    layer = 2 * shape.hidden * (1 if bf16 else 2)
    kept = tokens * (per_token + layer * shape.layers) if checkpointing else tokens * per_token * shape.layers
    return Memory(weights // shards, state // shards, kept)


def available(device: torch.device) -> int | None:
    """Return the free bytes of the device, or None for a CPU."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def token_budget(shape: Shape, free: int | None, storage: Storage, checkpointing: bool) -> int:
    """Return how many tokens one forward pass may hold; at least 1 (the plan then says that it will not fit)."""
    if free is None:
        return CPU_TOKENS
    fixed = estimate(shape, 0, storage, checkpointing).total
    thousand = estimate(shape, 1024, storage, checkpointing).total - fixed
    return max(1, int((GPU_SHARE * free - fixed) / (thousand / 1024)))
