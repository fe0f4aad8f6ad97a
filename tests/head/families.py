"""Tiny random models of ten families, and the dense loss an attached model must reproduce."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from torch import Tensor

import ranktuner as rt

V, T = 96, 14
_COMMON = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 2}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", _GROUPED),
    "qwen2": ("Qwen2Config", _GROUPED),
    "qwen3": ("Qwen3Config", {**_GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2Config", {**_GROUPED, "head_dim": 8, "final_logit_softcapping": 5.0}),
    "gemma3": ("Gemma3TextConfig", {**_GROUPED, "head_dim": 8, "final_logit_softcapping": 3.0}),
    "cohere": ("CohereConfig", {**_GROUPED, "logit_scale": 0.0625}),
    "granite": ("GraniteConfig", {**_GROUPED, "logits_scaling": 6.0}),
    "phi": ("PhiConfig", {**_COMMON, "resid_pdrop": 0.0}),
    "gpt2": (
        "GPT2Config",
        {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    ),
    "mixtral": (
        "MixtralConfig",
        {
            **_GROUPED,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "output_router_logits": True,
            "router_aux_loss_coef": 0.1,
        },
    ),
}


def tiny(family: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """A model of about ten thousand parameters, large enough weights that its predictions are not uniform."""
    name, settings = FAMILIES[family]
    torch.manual_seed(seed)
    model = tf.AutoModelForCausalLM.from_config(getattr(tf, name)(**settings, **_TOKENS, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.train()


def batch(seed: int = 1, rows: int = 3) -> dict[str, Tensor]:
    """Rows with a masked prompt of different lengths, the last one also masked at its end."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, V, (rows, T), generator=generator)
    labels = ids.clone()
    for row in range(rows):
        labels[row, : 3 + 2 * row] = -100
    labels[-1, T - 4 :] = -100
    return {"input_ids": ids, "labels": labels}


def dense(model: Any, data: dict[str, Tensor], method: str | rt.Method, count: float) -> Tensor:
    """The loss from the model's own logits: shifted here, reduced here."""
    out = model(**{k: v for k, v in data.items() if k not in ("labels", "token_weights")})
    logits, labels = out.logits[:, :-1], data["labels"][:, 1:]
    keep = labels != -100
    seq = torch.arange(len(labels))[:, None].expand_as(labels)[keep]
    weight = data["token_weights"][:, 1:][keep] if "token_weights" in data else None
    loss = rt.dense_loss(logits[keep], labels[keep], method, seq_N=seq, num_tokens=count, row_weight=weight).loss
    if getattr(model.config, "output_router_logits", False):
        from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

        loss = loss + model.config.router_aux_loss_coef * load_balancing_loss_func(out.router_logits, 4, 2, None)
    return loss


def gradients(model: Any) -> dict[str, Tensor]:
    """Take the gradients off the model."""
    found = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same_step(model: Any, data: dict[str, Tensor], method: str, count: float = 77, rtol: float = 1e-5) -> None:
    """Loss and every gradient of the attached model against those from its own logits."""
    chosen = rt.method(method)
    if chosen.context is not None:
        with torch.no_grad():
            chosen.context.prime(*_nll(model, data))
    reference = dense(model, data, chosen, count)
    reference.backward()
    expected = gradients(model)
    with rt.attach(model, chosen):
        loss = model(**data, num_items_in_batch=count).loss
        loss.backward()
    found = gradients(model)
    torch.testing.assert_close(loss, reference, rtol=rtol, atol=0)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        # a gradient that is zero in exact arithmetic (a key's bias under softmax) is rounding noise on both sides
        error = float((found[name] - gradient).norm())
        assert error <= 10 * rtol * float(gradient.norm()) + 1e-8, f"{name}: {error} of {float(gradient.norm())}"


def _nll(model: Any, data: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logits, labels = model(input_ids=data["input_ids"]).logits[:, :-1], data["labels"][:, 1:]
    keep = labels != -100
    seq = torch.arange(len(labels))[:, None].expand_as(labels)[keep]
    return torch.nn.functional.cross_entropy(logits[keep], labels[keep], reduction="none"), seq
