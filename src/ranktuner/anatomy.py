"""Where a model's output head is, and what happens to hidden states there: weight, bias, adapters, scale, softcap.

What cannot be read is refused by name; what is read here is compared with the model's own logits at first use.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ranktuner.errors import UnsupportedError
from ranktuner.kernels import Head

# Factors on the logits that families keep in their config, as name -> whether it divides.
_SCALES = {"logit_scale": False, "output_multiplier": False, "lm_head_multiplier": False, "logits_scaling": True}
_MULTIPLIES_AFTER_ALL = {"hyperclovax"}  # calls its multiplier `logits_scaling`


def underlying(model: Any) -> Any:
    """Return the transformers model inside DDP, torch.compile and PEFT wrappers."""
    while True:
        if isinstance(model, nn.DataParallel):
            raise UnsupportedError(
                "the model is wrapped in nn.DataParallel, which copies modules at each step; use "
                "DistributedDataParallel (torchrun), or hide all but one GPU (CUDA_VISIBLE_DEVICES=0)"
            )
        if hasattr(model, "_orig_mod"):  # torch.compile
            model = model._orig_mod
        elif isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
            model = model.get_base_model()
        else:
            return model


def find_head(model: Any) -> nn.Module:
    """Return the module that turns hidden states into logits."""
    name = type(model).__name__
    if not hasattr(model, "get_output_embeddings"):
        raise UnsupportedError(
            f"{name} has no get_output_embeddings(); a transformers causal language model (or PEFT on one) was "
            "expected. For another model call fused_weighted_loss with its hidden states and head weight"
        )
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise UnsupportedError(f"{name} has no output head; AutoModelForCausalLM was expected, not AutoModel")
    if "loss_function" not in inspect.getsource(type(model).forward):
        raise UnsupportedError(
            f"{name}.forward computes its loss itself instead of calling self.loss_function, so a weighting would have "
            "no effect; call fused_weighted_loss with its hidden states and head weight"
        )
    return head


def read_head(head: nn.Module, softcap: float | None, scale: float) -> Head:
    """Return what the head does now: inside its own forward, where sharded weights are gathered."""
    weight, bias = _weight_and_bias(head)
    if type(weight).__name__ == "DTensor":
        raise UnsupportedError(
            "the output head is sharded over its vocabulary (tensor parallel), where ranks and entropies would need a "
            "reduction over processes; leave lm_head out of the tensor-parallel plan, or use FSDP2"
        )
    return Head(weight, bias, softcap, scale)


def _weight_and_bias(head: Any) -> tuple[Tensor, Tensor | None]:
    name = type(head).__name__
    if hasattr(head, "modules_to_save") and hasattr(head, "original_module"):  # PEFT's copy of a whole module
        if head.disable_adapters:
            return _weight_and_bias(head.original_module)
        (active,) = head.active_adapters
        return _weight_and_bias(head.modules_to_save[active])
    if hasattr(head, "base_layer"):
        return _with_adapters(head)
    weight = getattr(head, "weight", None)
    if isinstance(head, nn.Linear) and isinstance(weight, Tensor) and weight.is_floating_point() and weight.ndim == 2:
        return weight, head.bias
    if isinstance(weight, Tensor) and not weight.is_floating_point():
        raise UnsupportedError(
            f"the output head is quantized ({name}, {weight.dtype}), so its logits are no plain product; keep it out "
            "of the quantization: llm_int8_skip_modules=['lm_head'] in BitsAndBytesConfig"
        )
    raise UnsupportedError(
        f"the output head is {name}; a torch.nn.Linear (also with LoRA adapters) was expected. Call "
        "fused_weighted_loss with what it computes, or dense_loss on its logits"
    )


def _with_adapters(head: Any) -> tuple[Tensor, Tensor | None]:
    """The effective weight W + sum of scaling * B A; autograd carries its gradient into A and B."""
    weight, bias = _weight_and_bias(head.base_layer)
    if head.disable_adapters or head.merged:
        return weight, bias
    for adapter in head.active_adapters:
        if adapter not in getattr(head, "lora_A", {}):
            continue
        dropout = head.lora_dropout[adapter]
        if not isinstance(dropout, nn.Identity) and dropout.p > 0 and head.training:
            raise UnsupportedError(
                f"the adapter {adapter!r} on the output head has dropout {dropout.p}: the head is no linear map then; "
                "set lora_dropout=0, or leave lm_head out of target_modules"
            )
        if getattr(head, "lora_variant", {}).get(adapter) is not None or getattr(head, "lora_bias", {}).get(adapter):
            raise UnsupportedError(
                f"the adapter {adapter!r} on the output head is a variant of LoRA (DoRA, bias, ...) whose effective "
                "weight is not W + BA; use plain LoRA there, or leave lm_head out of target_modules"
            )
        a, b = head.lora_A[adapter].weight, head.lora_B[adapter].weight
        weight = weight + (head.scaling[adapter] * (b @ a)).to(weight.dtype)
    kinds = [n for n in ("lora_A", "lora_embedding_A") if len(getattr(head, n, {}))]
    if kinds != ["lora_A"]:
        raise UnsupportedError(
            f"the output head carries adapters of {type(head).__name__}; LoRA was expected: leave lm_head out"
        )
    return weight, bias


def softcap_of(config: Any) -> float | None:
    """Return c of the final c tanh(z/c), from the config."""
    value = getattr(config, "final_logit_softcapping", None)
    return None if value is None else float(value)


def scale_of(config: Any) -> float:
    """Return the factor on the logits, from the config."""
    for name, divides in _SCALES.items():
        value = getattr(config, name, None)
        if value is not None:
            divides = divides and getattr(config, "model_type", "") not in _MULTIPLIES_AFTER_ALL
            return 1.0 / float(value) if divides else float(value)
    return 1.0


def check_same_logits(own: Tensor, ours: Tensor, name: str) -> None:
    """Compare the head's own output for a few tokens with the product computed here."""
    eps = torch.finfo(own.dtype).eps
    error = float((own.double() - ours.double()).abs().max())
    # a sum over the hidden size in another order: some tens of units in the last place of the largest logit
    limit = 64 * eps * max(float(own.double().abs().max()), 1.0)
    if not error <= limit:
        raise UnsupportedError(
            f"the head of {name} gives logits that differ by {error:.3g} from hidden @ weight.T + bias (limit "
            f"{limit:.3g}): it is not what it seems; call fused_weighted_loss with what it computes"
        )


def check_same_ending(got: Tensor, probe: Tensor, softcap: float | None, scale: float, name: str) -> None:
    """Compare what the model's forward does to logits after the head with what its config says."""
    expected = probe.double() * scale
    if softcap is not None:
        expected = softcap * torch.tanh(expected / softcap)
    got = got.double()
    error = float((got - expected).abs().max()) if got.shape == expected.shape else float("inf")
    if not error <= 1e-3 * max(1.0, float(expected.abs().max())):
        raise UnsupportedError(
            f"{name}.forward changes its logits after the head in a way that is not known here (softcap {softcap}, "
            f"scale {scale:g} were expected, the difference is {error:.3g}); call fused_weighted_loss with softcap= "
            "and logit_scale= as the model applies them"
        )
