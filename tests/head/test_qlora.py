"""QLoRA: the body's weights in 4 bits, adapters on top, the head left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers as tf
from head.families import assert_same_step, batch, tiny
from peft import LoraConfig, get_peft_model

import ranktuner as rt
from ranktuner.errors import UnsupportedError

pytest.importorskip("bitsandbytes", reason="4-bit weights need bitsandbytes: pip install 'ranktuner[qlora]'")


def in_four_bits(folder: Path, **changes: object) -> tf.PreTrainedModel:
    tiny(tie_word_embeddings=False).save_pretrained(folder)
    config = tf.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32, **changes
    )
    return tf.AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=torch.float32)


def test_adapters_on_a_body_in_four_bits(tmp_path: Path) -> None:
    base = in_four_bits(tmp_path)
    layer = base.model.layers[0].self_attn.q_proj
    assert layer.weight.dtype is torch.uint8, "or the body is not in 4 bits at all"
    torch.manual_seed(5)
    adapters = LoraConfig(r=3, lora_dropout=0.0, init_lora_weights=False, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(base, adapters).train()
    assert_same_step(model, batch(), "ranktuner(prior=prob)")


def test_a_head_in_four_bits_is_refused(tmp_path: Path) -> None:
    model = in_four_bits(tmp_path, llm_int8_skip_modules=["q_proj"]).train()
    assert model.lm_head.weight.dtype is torch.uint8
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=r"head is quantized .*llm_int8_skip_modules"):
        model(**batch(), num_items_in_batch=3)
