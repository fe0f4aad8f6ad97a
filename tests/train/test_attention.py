"""Sequences in one row do not see each other; models that cannot do that are found out."""

from __future__ import annotations

import pytest
import tiny
import torch

from ranktuner.errors import UnsupportedError
from ranktuner.train.attention import NAME, attend, register
from ranktuner.train.loading import keeps_apart

MODELS = [("qwen2", {}), ("llama", {"tie": True}), ("mistral", {"sliding_window": 5})]


@pytest.mark.parametrize(("kind", "changes"), MODELS)
@pytest.mark.parametrize("implementation", ["sdpa", "eager", NAME])
def test_flattened_sequences_get_the_logits_and_gradients_they_get_alone(
    kind: str, changes: dict[str, object], implementation: str
) -> None:
    register()
    model = tiny.model(kind=kind, **changes)
    ids = torch.randint(4, 400, (1, 30), generator=torch.Generator().manual_seed(1))
    lengths = (12, 1, 17)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    model.set_attn_implementation("eager")
    alone = torch.cat([model(part).logits for part in ids.split(lengths, 1)], 1)
    alone.square().sum().backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    model.set_attn_implementation(implementation)
    model.train()
    together = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    together.square().sum().backward()
    # a leak moves logits by whole units
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    for name, parameter in model.named_parameters():
        scale = expected[name].abs().max()
        assert (parameter.grad - expected[name]).abs().max() <= 1e-4 * scale, name


def test_padding_and_generation_are_untouched() -> None:
    register()
    model = tiny.model().eval()
    ids = torch.randint(4, 400, (2, 9), generator=torch.Generator().manual_seed(2))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    answers = []
    for implementation in ("sdpa", NAME):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        grown = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
        answers.append((logits, grown))
    torch.testing.assert_close(answers[0][0], answers[1][0])
    assert answers[0][1].tolist() == answers[1][1].tolist()


def test_layers_that_drop_positions_are_refused_in_training() -> None:
    layer = torch.nn.Linear(1, 1).train()
    q = torch.zeros(1, 2, 4, 8)
    with pytest.raises(UnsupportedError, match="does not hand position_ids to its attention"):
        attend(layer, q, q, q, None)


def test_models_that_leak_are_found_out() -> None:
    register()
    model = tiny.model()
    model.set_attn_implementation(NAME)
    assert keeps_apart(model)
    # A convolution over positions, as hybrid models have: it looks over the join.
    layer = model.model.layers[0]
    forward = layer.forward
    layer.forward = lambda hidden, *a, **k: forward(hidden + 0.1 * hidden.roll(1, dims=1), *a, **k)
    assert not keeps_apart(model)
