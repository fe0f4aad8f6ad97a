"""The model of a run: weights, attention, adapters; and the check that flattened sequences do not see each other."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from ranktuner.errors import InputError, UnsupportedError, missing_extra
from ranktuner.train import attention
from ranktuner.train.config import LoraConfig, TrainConfig
from ranktuner.train.plan import Plan

PROBE = (5, 8)
"""Lengths of the two sequences of the isolation check."""


def load_model(config: TrainConfig, plan: Plan) -> Any:
    """Return the model, with adapters where asked for, on the CPU or (quantized, or sharded at load) on its device."""
    from transformers import AutoModelForCausalLM

    frozen = config.lora.rank > 0
    options: dict[str, Any] = {
        # Trained weights are fp32 and bf16 is the arithmetic; frozen ones lose nothing by being bf16.
        "dtype": torch.bfloat16 if plan.bf16 and frozen else torch.float32,
        "trust_remote_code": config.model.trust_remote_code,
        "attn_implementation": _attention(config, plan),
    }
    if config.lora.quantize:
        options["quantization_config"] = _four_bits()
        options["device_map"] = {"": plan.device}
    if config.sharding == "native":
        from transformers.distributed import DistributedConfig

        options["distributed_config"] = DistributedConfig(fsdp_size=plan.processes)
    try:
        model = AutoModelForCausalLM.from_pretrained(config.model.path, **options)
    except (OSError, ValueError) as error:
        if options["attn_implementation"] == attention.NAME and "attn_implementation" in str(error):
            options.pop("attn_implementation")
            model = AutoModelForCausalLM.from_pretrained(config.model.path, **options)
        else:
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"model {config.model.path}: its weights cannot be loaded ({reason})") from error
    if plan.checkpointing and not frozen:
        model.config.use_cache = False
    return add_adapters(model, config.lora, config.seed) if frozen else model


def add_adapters(model: Any, lora: LoraConfig, seed: int) -> Any:
    """Return the model with LoRA adapters on its linear layers; their first values depend on the seed alone."""
    try:
        from peft import LoraConfig as PeftLora
        from peft import get_peft_model, prepare_model_for_kbit_training
    except ImportError as error:
        raise missing_extra("peft", "train", "LoRA") from error
    if lora.quantize:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    torch.manual_seed(seed)
    adapters = PeftLora(
        r=lora.rank,
        lora_alpha=lora.alpha or 2 * lora.rank,
        lora_dropout=lora.dropout,
        target_modules=lora.targets,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, adapters)
    except ValueError as error:
        raise InputError(f"lora.targets={lora.targets!r}: {str(error).splitlines()[0]}") from error


def keeps_apart(model: Any) -> bool:
    """Whether two sequences flattened into one row get the logits that they get alone.

    True by construction for attention that reads positions; false for recurrent and convolutional layers, and for
    attention that drops its position_ids.
    """
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config().vocab_size
    device = next(model.parameters()).device
    ids = torch.randint(0, vocabulary, (1, sum(PROBE)), generator=generator).to(device)
    positions = torch.cat([torch.arange(n, device=device) for n in PROBE])[None]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            together = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0, PROBE[0] :]
            alone = model(input_ids=ids[:, PROBE[0] :], use_cache=False).logits[0]
    finally:
        model.train(was_training)
        _reshard(model)
    together, alone = together.float(), alone.float()
    # A leak moves logits by a large part of their spread; rounding moves them by a few units of the dtype's step.
    step = torch.finfo(next(model.parameters()).dtype).eps
    return bool((together - alone).abs().max() <= max(64 * step, 1e-4) * alone.std().clamp_min(1e-6) * 10)


def _reshard(model: Any) -> None:
    """Shard again what a forward pass without backward has left whole.

    FSDP2 keeps its last group unsharded for the backward that never comes here; an optimiser made now would hold
    these whole copies, and the real parameters would never move.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def settle_attention(model: Any, config: TrainConfig) -> bool:
    """Make the model keep flattened sequences apart; return whether it does (else batches are padded)."""
    if keeps_apart(model):
        return True
    if config.model.attention == "auto":
        for name in ("sdpa", "eager"):
            try:
                model.set_attn_implementation(name)
            except (ValueError, ImportError):
                continue
            if keeps_apart(model):
                return True
    return False


def _attention(config: TrainConfig, plan: Plan) -> str:
    if config.model.attention != "auto":
        return config.model.attention
    if plan.device.startswith("cuda") and plan.bf16 and importlib.util.find_spec("flash_attn") is not None:
        return "flash_attention_2"
    return attention.register()


def _four_bits() -> Any:
    if importlib.util.find_spec("bitsandbytes") is None:
        raise missing_extra("bitsandbytes", "qlora", "lora.quantize")
    if not torch.cuda.is_available():
        raise UnsupportedError("lora.quantize needs a CUDA device and there is none; train LoRA in bf16: leave it out")
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
