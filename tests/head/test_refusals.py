"""What an attachment refuses, by name and with the way out; nothing is ignored in silence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from head.families import T, V, batch, tiny
from torch import nn

import ranktuner as rt
from ranktuner.errors import InputError, NonFiniteError, UnsupportedError


def test_double_attach() -> None:
    model = tiny()
    with (
        rt.attach(model, "dft"),
        pytest.raises(UnsupportedError, match=r"dft on the .* is attached .* detach\(\) it"),
    ):
        rt.attach(model, "sft")


def test_training_without_labels() -> None:
    model = tiny()
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match="training forward without labels while dft"):
        model(input_ids=batch()["input_ids"])


def test_training_without_the_count() -> None:
    model = tiny()
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=r"num_items_in_batch .* reduction='local'"):
        model(**batch())
    with rt.attach(model, "dft", reduction="local"):
        assert model(**batch()).loss.requires_grad


def test_unknown_reduction() -> None:
    with pytest.raises(InputError, match="reduction is 'mean'; 'global'"):
        rt.attach(tiny(), "dft", reduction="mean")  # type: ignore[arg-type]


def test_trl_fused_head_is_refused() -> None:
    model = tiny()
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=r"ranktuner\.integrations\.trl\.SFTTrainer"):
        model.__call__(**batch(), fused_lm_head=True)


def test_using_the_logits_of_a_training_forward() -> None:
    model = tiny()
    with rt.attach(model, "dft"):
        out = model(**batch(), num_items_in_batch=3)
        for use in (lambda x: x.argmax(-1), lambda x: x[..., :-1], lambda x: x.float()):
            with pytest.raises(UnsupportedError, match="keeps no logits in training"):
                use(out.logits)
        assert copy.copy(out.logits) is not None, "machinery that copies outputs looks for names it need not find"


def test_label_outside_the_vocabulary_names_row_and_position() -> None:
    model, data = tiny(), batch()
    data["labels"][1, 7] = V
    with rt.attach(model, "dft"), pytest.raises(InputError, match=f"label {V} in row 1 at position 7 .* of {V}"):
        model(**data, num_items_in_batch=3)


@pytest.mark.parametrize("training", [True, False])
def test_non_finite_hidden_states_name_sequence_and_position(training: bool) -> None:
    model, data = tiny().train(training), batch()

    def poison(module: nn.Module, args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state.clone()
        output.last_hidden_state[2, 8] = float("nan")
        return output

    model.model.register_forward_hook(poison)
    with rt.attach(model, "dft"), pytest.raises(NonFiniteError, match=r"sequence 2, position 9: nll is nan"):
        model(**data, num_items_in_batch=3)


def test_sliced_hidden_states() -> None:
    model = tiny()
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=r"logits_to_keep .* shift_labels"):
        model(**batch(), num_items_in_batch=3, logits_to_keep=4)


def test_sequence_parallel_labels_that_are_not_shifted() -> None:
    model, data = tiny(), batch()
    half = data["input_ids"][:, : T // 2]
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match="must be shifted before they are sharded"):
        model(input_ids=half, labels=data["labels"], num_items_in_batch=3)


def test_a_model_without_an_output_head() -> None:
    with pytest.raises(UnsupportedError, match="LlamaModel has no output head; AutoModelForCausalLM was expected"):
        rt.attach(tiny().model, "dft")
    with pytest.raises(UnsupportedError, match=r"Linear has no get_output_embeddings\(\)"):
        rt.attach(nn.Linear(3, 3), "dft")


def test_a_head_that_is_not_linear() -> None:
    model = tiny(tie_word_embeddings=False)
    model.lm_head = nn.Sequential(model.lm_head)
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=r"output head is Sequential; a torch\.nn"):
        model(**batch(), num_items_in_batch=3)


def test_a_head_of_another_hidden_size() -> None:
    model = tiny(tie_word_embeddings=False)
    model.lm_head = nn.Linear(16, V, bias=False)
    with (
        rt.attach(model, "dft"),
        pytest.raises(InputError, match=r"shape \(3, 14, 32\) reach a head of \(96, 16\); \[B, T, 16\] was expected"),
    ):
        model(**batch(), num_items_in_batch=3)


@pytest.fixture
def pretended_processes() -> Iterator[None]:
    """Two processes of which only this one exists; enough to shard a weight."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("pretended_processes")
def test_a_tensor_parallel_head() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model = tiny(tie_word_embeddings=False)
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"lm_head": ColwiseParallel()})
    with (
        rt.attach(model, "dft"),
        pytest.raises(UnsupportedError, match=r"\(tensor parallel\).*leave lm_head out of the tensor-parallel plan"),
    ):
        model(**batch(), num_items_in_batch=3)


def test_adapters_that_are_not_lora() -> None:
    from peft import IA3Config, get_peft_model

    base = tiny(tie_word_embeddings=False)
    model = get_peft_model(base, IA3Config(target_modules=["lm_head"], feedforward_modules=[])).train()
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=r"LoRA was expected: leave lm_head out"):
        model(**batch(), num_items_in_batch=3)


def test_a_head_that_is_not_what_it_seems() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = tiny(tie_word_embeddings=False)
    head = Doubled(32, V, bias=False)
    head.weight = model.lm_head.weight
    model.lm_head = head
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match="it is not what it seems"):
        model(**batch(), num_items_in_batch=3)


@pytest.mark.parametrize("change", [{"logit_scale": 0.5}, {"final_logit_softcapping": 7.0}])
def test_an_ending_that_the_config_does_not_tell(change: dict[str, float]) -> None:
    """A multiplier or softcap that the model's forward does not apply: the other direction of the same doubt."""
    model = tiny("llama")
    for name, value in change.items():
        setattr(model.config, name, value)
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match="changes its logits after the head in a way"):
        model(**batch(), num_items_in_batch=3)


def test_a_multiplier_hidden_in_the_forward() -> None:
    model = tiny("cohere")
    model.logit_scale = 0.5  # the module's own, away from the config's
    with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match="changes its logits after the head"):
        model(**batch(), num_items_in_batch=3)


def test_a_forward_that_computes_its_own_loss() -> None:
    class Own(type(tiny())):  # type: ignore[misc]
        def forward(self, input_ids: Any = None, labels: Any = None, **_: Any) -> Any:
            return nn.functional.cross_entropy(self.lm_head(self.model(input_ids)[0]).flatten(0, 1), labels.flatten())

    model = tiny()
    model.__class__ = Own
    with pytest.raises(UnsupportedError, match=r"Own\.forward computes its loss itself"):
        rt.attach(model, "dft")


def test_a_forward_that_goes_past_the_attachment() -> None:
    """It names self.loss_function, as every model's does, and takes another way at run time."""

    class Twice(type(tiny())):  # type: ignore[misc]
        def forward(self, input_ids: Any = None, labels: Any = None, **_: Any) -> Any:
            hidden = self.model(input_ids)[0]
            return self.loss_function(self.lm_head(hidden) + self.lm_head(hidden), labels)

    class Past(type(tiny())):  # type: ignore[misc]
        def forward(self, input_ids: Any = None, labels: Any = None, **_: Any) -> Any:
            hidden = self.model(input_ids)[0]
            return self.loss_function(hidden @ self.lm_head.weight.T, labels, self.config.vocab_size)

    class Own(type(tiny())):  # type: ignore[misc]
        def forward(self, input_ids: Any = None, labels: Any = None, **_: Any) -> Any:
            logits = self.lm_head(self.model(input_ids)[0])
            return self.loss_function if labels is None else logits.sum()

    for kind, why in (
        (Twice, "Twice calls its output head more than once in a forward; one call was expected"),
        (Past, "Past was given labels but did not call its output head, so dft had no effect"),
        (Own, "Own was given labels but did not call loss_function, so dft had no effect"),
    ):
        model = tiny()
        model.__class__ = kind
        with rt.attach(model, "dft"), pytest.raises(UnsupportedError, match=f"{why}.* use fused_weighted_loss"):
            model(**batch(), num_items_in_batch=3)


def test_another_process_that_saw_what_is_not_finite() -> None:
    model = tiny()
    with rt.attach(model, "dft") as attachment:
        model(**batch(), num_items_in_batch=3)
        attachment.raise_if_nonfinite(anywhere=False)
        with pytest.raises(NonFiniteError, match="not finite on another process; its message says which token"):
            attachment.raise_if_nonfinite(anywhere=True)


def test_data_parallel() -> None:
    with pytest.raises(UnsupportedError, match="use DistributedDataParallel"):
        rt.attach(nn.DataParallel(tiny()), "dft")


def test_overtone_mix_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"overtone\(mode=mix\) .*dense_loss"):
        rt.attach(tiny(), "overtone(mode=mix)")


def test_gradient_budget_with_an_entropy_term_or_a_batch_method() -> None:
    model = tiny()
    for method, why in (("entropy-reg", "entropy term"), ("talr(tau=micro-batch)", "grad_budget=0.1 does not go with")):
        with rt.attach(model, method, grad_budget=0.1), pytest.raises(UnsupportedError, match=why):
            model(**batch(), num_items_in_batch=3)


def test_backward_twice() -> None:
    model = tiny()
    with rt.attach(model, "dft"):
        loss = model(**batch(), num_items_in_batch=3).loss
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="backward was called twice through one fused loss"):
            loss.backward()


def test_weights_of_the_data() -> None:
    model, data = tiny(), batch()
    with rt.attach(model, "dft"):
        with pytest.raises(InputError, match=r"token_weights have shape \(3,\), labels \(3, 14\)"):
            model(**data, num_items_in_batch=3, token_weights=torch.ones(3))
        with pytest.raises(InputError, match=r"row_weight of token 0 is -1\.0"):
            model(**data, num_items_in_batch=3, token_weights=-torch.ones(3, T))


def test_unknown_method_is_refused_before_the_model_is_touched() -> None:
    model = tiny()
    with pytest.raises(InputError, match="did you mean 'dft'"):
        rt.attach(model, "dfft")
    assert not model._forward_pre_hooks
