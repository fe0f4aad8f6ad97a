"""The fp32 product that is made in blocks where torch's own would run at half the width."""

import platform

import pytest
import torch

import ranktuner as rt
from ranktuner.kernels import products

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available(),
    reason="torch is built without oneDNN here",
)


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks whatever the processor, and small ones, so that several are needed."""
    monkeypatch.setattr(products, "mkl_is_narrow", lambda: True)
    monkeypatch.setattr(products, "BLOCK_BYTES", 4 * 40)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 5, 37), (37, 5, 3), (8, 64, 8), (41, 3, 1), (1, 3, 41)])
def test_blocks_give_the_product(m: int, k: int, n: int, add: bool) -> None:
    torch.manual_seed(m + n)
    a, b, old = torch.randn(k, m).t(), torch.randn(k, n), torch.randn(m, n)
    out = old.clone()
    assert products.multiply(a, b, out, add=add) is out
    want = a.double() @ b.double() + (old.double() if add else 0)
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)


def test_nothing_is_read_of_memory_that_is_only_written() -> None:
    out = torch.full((6, 50), float("nan"))
    products.multiply(torch.ones(6, 2), torch.ones(2, 50), out)
    assert out.eq(2).all()


def test_no_rows_are_no_work() -> None:
    assert products.multiply(torch.ones(0, 2), torch.ones(2, 50), torch.empty(0, 50)).shape == (0, 50)


@pytest.mark.parametrize("method", ["sft", "ranktuner(prior=prob)", "entropy-reg"])
def test_the_loss_and_its_gradients_are_those_of_plain_products(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    hidden, head, labels = torch.randn(29, 16), torch.randn(211, 16), torch.randint(0, 211, (29,))

    def taken() -> list[torch.Tensor]:
        h, w = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        loss = rt.fused_weighted_loss(h, w, labels, method, chunk=8).loss
        return [loss.detach(), *torch.autograd.grad(loss, [h, w])]

    in_blocks = taken()
    monkeypatch.setattr(products, "mkl_is_narrow", lambda: False)
    for block, plain in zip(in_blocks, taken(), strict=True):
        torch.testing.assert_close(block, plain, rtol=2e-5, atol=1e-6)
