"""A tokenizer and models of a few thousand parameters, made on the spot: for tests that need a real model folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ranktuner.compare.stand_ins import CHATML, byte_level

TEXT = [
    "What is 2+3? The answer is, essentially, 5. She sold 48/2 = 24 clips in May and 72 altogether.",
    "A question about numbers, words, and the weather: how many clips did Natalia sell altogether?",
    "Answer: first add the apples, then divide by two, and the result is forty-two.",
]


@cache
def _trained() -> Any:
    return byte_level(TEXT * 4, 400)


def tokenizer(chat: bool = True, template: str | None = None) -> Any:
    """A byte-level tokenizer of about 400 tokens, with ChatML or without a template."""
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=_trained(),
        eos_token="<|im_end|>" if chat else "<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    if chat:
        made.chat_template = template or CHATML
    return made


def model(seed: int = 0, *, tie: bool = False, kind: str = "qwen2", **changes: Any) -> Any:
    """A random two-layer causal LM over the tiny tokenizer's vocabulary, in fp32."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

    config = {"qwen2": Qwen2Config, "llama": LlamaConfig, "mistral": MistralConfig}[kind](
        **{
            "vocab_size": 404,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "tie_word_embeddings": tie,
            "bos_token_id": None,
            "eos_token_id": 3,
            "pad_token_id": 0,
            # Wide enough that predictions are not all alike: ranks, gates and entropies then differ.
            "initializer_range": 0.2,
            **changes,
        }
    )
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def model_folder(path: Path, *, chat: bool = True, **changes: Any) -> Path:
    """Write a tiny model and its tokenizer as an ordinary model folder; return it."""
    model(**changes).save_pretrained(path)
    tokenizer(chat).save_pretrained(path)
    return path
