"""Linear layers with oneDNN's product: the model's own numbers, and nothing else about it changed."""

from __future__ import annotations

import platform

import pytest
import tiny
import torch

from ranktuner.train import linear

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available(),
    reason="torch is built without oneDNN here",
)


@pytest.mark.parametrize(("kind", "changes"), [("qwen2", {}), ("llama", {"tie": True})])
def test_logits_and_gradients_are_those_of_plain_layers(
    kind: str, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(4, 400, (2, 17), generator=torch.Generator().manual_seed(1))

    def taken(model: torch.nn.Module) -> list[torch.Tensor]:
        logits = model(ids, use_cache=False).logits
        logits.square().mean().backward()
        return [logits.detach(), *(p.grad for p in model.parameters())]

    plain = taken(tiny.model(kind=kind, **changes))
    monkeypatch.setattr(linear, "mkl_is_narrow", lambda: True)
    model = tiny.model(kind=kind, **changes)
    names = set(model.state_dict())
    assert linear.quicken(model) == sum(type(m) is torch.nn.Linear for m in model.modules()) - 1  # not the head
    assert set(model.state_dict()) == names
    for a, b in zip(plain, taken(model), strict=True):
        assert (a - b).abs().max() <= 1e-5 * a.abs().max()


def test_frozen_weights_and_other_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "mkl_is_narrow", lambda: True)
    layer = torch.nn.Sequential(torch.nn.Linear(5, 7))
    layer[0].weight.requires_grad_(False)
    assert linear.quicken(layer) == 1
    x = torch.randn(2, 3, 5, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer[0].weight.sum(0).expand(2, 3, 5))
    assert layer[0].weight.grad is None
    torch.testing.assert_close(layer[0].bias.grad, torch.full((7,), 6.0))
    assert layer(torch.zeros(0, 5)).shape == (0, 7)
    assert layer.double()(x.detach().double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(x).dtype == torch.bfloat16


def test_processors_that_need_none_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "mkl_is_narrow", lambda: False)
    model = tiny.model()
    assert linear.quicken(model) == 0
    assert not any("forward" in vars(m) for m in model.modules())
