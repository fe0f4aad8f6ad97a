"""An attached model against its own logits: ten families, every method, every way of holding the head."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from head.families import FAMILIES, T, V, assert_same_step, batch, dense, gradients, tiny
from peft import LoraConfig, get_peft_model

import ranktuner as rt

SPECS = [*(n for n in rt.methods()), "ranktuner(prior=prob)", "talr(tau=micro-batch)"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["sft", "ranktuner(prior=prob)", "eaft", "entropy-reg", "talr(tau=micro-batch)"])
def test_loss_and_gradients_are_those_of_the_models_own_logits(family: str, method: str) -> None:
    assert_same_step(tiny(family), batch(), method)


@pytest.mark.parametrize("method", SPECS)
def test_every_method(method: str) -> None:
    assert_same_step(tiny("qwen2"), batch(), method)


@pytest.mark.parametrize("tie", [True, False])
def test_tied_and_untied_heads(tie: bool) -> None:
    assert_same_step(tiny("llama", tie_word_embeddings=tie), batch(), "ranktuner")


def test_frozen_head_and_frozen_body() -> None:
    model = tiny("llama", tie_word_embeddings=False)
    model.lm_head.weight.requires_grad_(False)
    assert_same_step(model, batch(), "ranktuner")
    model = tiny("llama", tie_word_embeddings=False).requires_grad_(False)
    model.lm_head.weight.requires_grad_(True)
    assert_same_step(model, batch(), "ranktuner")


def test_weights_of_the_data_multiply_those_of_the_method() -> None:
    data = batch()
    data["token_weights"] = torch.rand(3, T, generator=torch.Generator().manual_seed(3))
    assert_same_step(tiny("llama"), data, "ranktuner(prior=prob)")


def test_gradient_checkpointing() -> None:
    model = tiny("llama")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert_same_step(model, batch(), "ranktuner")


def test_bf16_autocast() -> None:
    model, data = tiny("llama"), batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same_step(model, data, "ranktuner(prior=prob)", rtol=2e-2)


def test_bf16_model_gives_fp32_loss_close_to_its_logits() -> None:
    assert_same_step(tiny("llama").to(torch.bfloat16), batch(), "ranktuner(prior=prob)", rtol=3e-2)


def test_float64_model_to_the_last_digits() -> None:
    assert_same_step(tiny("gemma2").double(), batch(), "ranktuner(prior=prob)", rtol=1e-12)


def test_compiled_model() -> None:
    model, data = tiny("llama"), batch()
    reference = dense(model, data, "ranktuner", 77)
    reference.backward()
    expected = gradients(model)
    with rt.attach(model, "ranktuner"):
        compiled = torch.compile(model, backend="aot_eager")
        loss = compiled(**data, num_items_in_batch=77).loss
        loss.backward()
    torch.testing.assert_close(loss, reference, rtol=1e-5, atol=0)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ],
    ids=["body", "body and head", "head saved whole"],
)
def test_lora(config: dict[str, Any]) -> None:
    torch.manual_seed(5)
    base = tiny("llama", tie_word_embeddings=False)
    model = get_peft_model(base, LoraConfig(r=3, lora_dropout=0.0, init_lora_weights=False, **config)).train()
    assert_same_step(model, batch(), "ranktuner(prior=prob)")


def test_quantized_looking_head_is_refused() -> None:
    model = tiny("llama", tie_word_embeddings=False)
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(V, 32, dtype=torch.uint8), requires_grad=False)
    with rt.attach(model, "sft"), pytest.raises(rt_error("UnsupportedError"), match=r"quantized .*skip_modules"):
        model(**batch(), num_items_in_batch=3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lora_dropout": 0.1}, "dropout 0.1: the head is no linear map then; set lora_dropout=0"),
        ({"use_dora": True}, "variant of LoRA"),
    ],
)
def test_adapters_on_the_head_that_are_no_linear_map_are_refused(config: dict[str, Any], message: str) -> None:
    base = tiny("llama", tie_word_embeddings=False)
    model = get_peft_model(base, LoraConfig(r=3, target_modules=["lm_head"], **config)).train()
    with rt.attach(model, "sft"), pytest.raises(rt_error("UnsupportedError"), match=message):
        model(**batch(), num_items_in_batch=3)


# --- padding-free batches, shifted labels -------------------------------------------------------------------------


def test_flattened_sequences_are_those_of_the_padded_batch() -> None:
    """Two rows end to end with their position_ids: the token that begins the second is nobody's target."""
    model, data = tiny("llama"), batch(rows=2)
    with rt.attach(model, "talr(tau=micro-batch)", reduction="local") as attachment:
        model(**data)
        signals = attachment.last.signals
        flat = {name: x.reshape(1, -1) for name, x in data.items()}
        flat["labels"] = flat["labels"].clone()
        flat["labels"][0, T] = 5  # a label on the first token of the second sequence: must not be predicted
        positions = torch.arange(T).repeat(2)[None]
        mask = torch.block_diag(*[torch.ones(T, T).tril().bool()] * 2)[None, None]
        model(**flat, position_ids=positions, attention_mask=mask)
        torch.testing.assert_close(attachment.last.signals.nll, signals.nll, rtol=1e-5, atol=1e-6)
        assert attachment.last.signals.seq.unique().tolist() == [0, 1]
        assert torch.equal(attachment.last.signals.seq, signals.seq)


def test_cumulative_lengths_name_the_sequences_too() -> None:
    model, data = tiny("llama"), batch(rows=2)
    flat = {name: x.reshape(1, -1) for name, x in data.items()}
    with rt.attach(model, "sft", reduction="local") as attachment:
        model(**flat, cu_seq_lens_q=torch.tensor([0, T, 2 * T]))
        assert attachment.last.signals.seq.unique().tolist() == [0, 1]


def test_labels_that_are_shifted_already() -> None:
    model, data = tiny("llama"), batch()
    shifted = torch.nn.functional.pad(data["labels"][:, 1:], (0, 1), value=-100)
    weights = torch.rand(3, T, generator=torch.Generator().manual_seed(3))
    moved = torch.nn.functional.pad(weights[:, 1:], (0, 1))  # the data's weights are shifted with the labels
    with rt.attach(model, "ranktuner") as attachment:
        for plain, ahead in (({}, {}), ({"token_weights": weights}, {"token_weights": moved})):
            expected = model(**data, **plain, num_items_in_batch=9).loss
            loss = model(input_ids=data["input_ids"], shift_labels=shifted, **ahead, num_items_in_batch=9).loss
            assert len(attachment.last.aligned) == int((shifted != -100).sum())
            torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)


def test_an_all_masked_micro_batch_still_has_a_gradient_path() -> None:
    model, data = tiny("llama"), batch()
    data["labels"] = torch.full_like(data["labels"], -100)
    for method in ("ranktuner", "talr(tau=micro-batch)"):
        with rt.attach(model, method):
            loss = model(**data, num_items_in_batch=50).loss
            loss.backward()
        assert float(loss.detach()) == 0.0
        found = gradients(model)
        assert "lm_head.weight" in found
        assert all(float(g.abs().max()) == 0 for g in found.values())


# --- accumulation, metrics ------------------------------------------------------------------------------------------


def test_micro_batches_add_up_to_the_batch() -> None:
    model, data = tiny("llama"), batch(rows=4)
    count = int((data["labels"][:, 1:] != -100).sum())
    with rt.attach(model, "ranktuner(prior=prob)") as attachment:
        model(**data, num_items_in_batch=count).loss.backward()
        whole, metrics = gradients(model), attachment.pop_metrics()
        for row in range(4):
            part = {k: v[row : row + 1] for k, v in data.items()}
            model(**part, num_items_in_batch=torch.tensor(count)).loss.backward()
        parts, summed = gradients(model), attachment.pop_metrics()
        assert attachment.pop_metrics() == {}
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-7)
    assert summed.keys() == metrics.keys()
    for name, value in metrics.items():
        torch.testing.assert_close(summed[name], value, rtol=1e-5, atol=1e-9)
    line = rt.summarize(metrics)
    assert line["tokens"] == count
    assert 0 < line["effective_tokens"] < 1


def test_count_below_one_divides_by_one() -> None:
    model, data = tiny("llama"), batch()
    with rt.attach(model, "sft"):
        none = model(**data, num_items_in_batch=torch.tensor(0)).loss
        one = model(**data, num_items_in_batch=1).loss
    assert float(none) == float(one)


# --- evaluation, generation, detaching -----


def test_evaluation_is_plain_nll_without_logits() -> None:
    model, data = tiny("llama").eval(), batch()
    with torch.no_grad():
        expected = model(**data).loss
        with rt.attach(model, "ranktuner(prior=prob)") as attachment:
            out = model(**data)
            metrics = attachment.pop_metrics(evaluation=True)
            assert attachment.pop_metrics() == {}
    torch.testing.assert_close(out.loss, expected, rtol=1e-6, atol=0)
    assert out.logits is None
    assert float(metrics["nll_sum"] / metrics["tokens_sum"]) == pytest.approx(float(expected), rel=1e-6)


def test_an_evaluation_loss_cannot_be_trained_on() -> None:
    model = tiny("llama").eval()
    with rt.attach(model, "dft"):
        assert not model(**batch()).loss.requires_grad


def test_generation_saving_and_detaching_leave_the_model_as_it_was(tmp_path: Path) -> None:
    model, data = tiny("llama"), batch()
    model.eval()
    prompt = data["input_ids"][:1, :5]
    before = {name: x.clone() for name, x in model.state_dict().items()}
    attributes = (set(vars(model)), set(vars(model.lm_head)), model.loss_function)
    with torch.no_grad():
        logits, words = model(input_ids=prompt).logits, model.generate(prompt, max_new_tokens=6, do_sample=False)
    attachment = rt.attach(model, "ranktuner")
    with torch.no_grad():
        assert torch.equal(model(input_ids=prompt).logits, logits)
    assert torch.equal(model.generate(prompt, max_new_tokens=6, do_sample=False), words)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    attachment.detach()
    attachment.detach()
    assert (set(vars(model)), set(vars(model.lm_head)), model.loss_function) == attributes
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    for name, x in before.items():
        assert torch.equal(model.state_dict()[name], x)
        assert torch.equal(again.state_dict()[name], x)
    with torch.no_grad():
        assert torch.equal(model(input_ids=prompt).logits, logits)


def test_a_failed_forward_does_not_leave_the_head_armed() -> None:
    model, data = tiny("llama"), batch()
    with rt.attach(model, "sft"):
        with contextlib.suppress(IndexError):
            model(input_ids=data["input_ids"] + 1000, labels=data["labels"], num_items_in_batch=3)
        with torch.no_grad():
            assert model(input_ids=data["input_ids"]).logits.shape == (3, T, V)


# --- score ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attached", [True, False])
def test_score_gives_the_signals_of_each_token_and_where_it_stands(attached: bool) -> None:
    model, data = tiny("gemma3"), batch()
    with torch.no_grad():
        logits = model.eval()(input_ids=data["input_ids"]).logits
    model.train()
    with rt.attach(model, "dft") if attached else contextlib.nullcontext():
        scored = rt.score(model, data, needs=["expected_rank", "mass_above"])
        assert model.training
    keep = data["labels"][:, 1:] != -100
    row, before = keep.nonzero().unbind(1)
    assert torch.equal(scored.row, row)
    assert torch.equal(scored.position, before + 1)
    dense_rows = logits[row, before]
    expected = rt.signals_from_logits(dense_rows, data["input_ids"][row, before + 1], needs=["mass_above"])
    torch.testing.assert_close(scored.signals.nll, expected.nll, rtol=1e-5, atol=1e-6)
    assert torch.equal(scored.signals.rank, expected.rank)
    torch.testing.assert_close(scored.signals.expected_rank, rt.expected_rank(dense_rows), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scored.signals.mass_above, expected.mass_above, rtol=1e-4, atol=1e-6)


def test_score_takes_all_tokens_that_are_not_padding_by_default() -> None:
    model, ids = tiny("llama"), batch()["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    scored = rt.score(model, {"input_ids": ids, "attention_mask": mask})
    assert len(scored.signals) == 3 * (T - 1) - 4


def test_talr_is_primed_from_a_step_and_then_lags_by_one() -> None:
    model, data = tiny("llama"), batch()
    with rt.attach(model, "talr") as attachment:
        with pytest.raises(
            rt_error("UnsupportedError"), match=r"no value before the first step: call prime\(batches\)"
        ):
            model(**data, num_items_in_batch=9)
        attachment.prime([data])
        first = attachment.method.context.value()
        scored = rt.score(model, data).signals
        means = [float(scored.nll[scored.seq == s].mean()) for s in scored.seq.unique()]
        assert first == pytest.approx(sorted(means)[1], rel=1e-5)
        model(**data, num_items_in_batch=9).loss.backward()
        assert attachment.method.context.value() == first
        attachment.step()
        assert attachment.method.context.value() == pytest.approx(first, rel=1e-6)


def rt_error(name: str) -> type[Exception]:
    from ranktuner import errors

    return getattr(errors, name)
