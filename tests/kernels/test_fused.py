"""How the fused paths behave around the numbers: products done, memory, dtypes, backward, refusals."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from written_out import (
    COUNT,
    Problem,
    assert_same,
    error,
    fused,
    judged,
    primed,
    problem,
    recomputed,
    signals_of,
    sums_of,
)

from ranktuner.errors import UnsupportedError
from ranktuner.kernels import Head
from ranktuner.kernels.products import chunk_rows
from ranktuner.loss import weighted_loss
from ranktuner.registry import method
from ranktuner.signals import RowTerms, Signals

SFT = method("sft").terms


def total_in_forward(p: Problem, spec: str = "sft", **kwargs: object) -> Tensor:
    return sums_of(p, method(spec).terms, implementation="plain", **kwargs).total


def total_by_recompute(p: Problem, spec: str = "sft", **kwargs: object) -> Tensor:
    signals = signals_of(p, implementation="plain", **kwargs)
    return weighted_loss(signals, spec, num_tokens=1, row_weight=p.row_weight).loss


def rows_of(p: Problem, part: slice) -> Problem:
    return replace(p, hidden=p.hidden[part], target=p.target[part], seq=p.seq[part], row_weight=p.row_weight[part])


both_ways = pytest.mark.parametrize("total", [total_in_forward, total_by_recompute])
Total = Callable[..., Tensor]

# ---------------------------------------------------------------- which products are done


def added_product(total: tuple[int, int], a: tuple[int, int], b: tuple[int, int], **_: object) -> int:
    return 2 * a[0] * a[1] * b[1]


def blockwise_product(a: tuple[int, int], b: tuple[int, int], *_: object, **__: object) -> int:
    """Count one of oneDNN's, which takes its second matrix transposed."""
    return 2 * a[0] * a[1] * b[0]


COUNTED = {torch.ops.aten.addmm_: added_product, torch.ops.mkldnn._linear_pointwise: blockwise_product}


def products(p: Problem, total: Total, **kwargs: object) -> float:
    """Matrix products done for loss and gradients, in units of one full [N, D] x [D, V]."""
    n, width = p.hidden.shape
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
        loss = total(p, **kwargs)
        if loss.requires_grad:
            loss.backward()
    return counter.get_total_flops() / (2 * n * width * p.weight.shape[0])


def wanting(p: Problem, *, hidden: bool, weight: bool, bias: bool = False) -> Problem:
    fresh = p.fresh()
    fresh.hidden.requires_grad_(hidden)
    fresh.weight.requires_grad_(weight)
    if fresh.bias is not None:
        fresh.bias.requires_grad_(bias)
    return fresh


@pytest.mark.parametrize(
    ("hidden", "weight", "in_forward", "by_recompute"),
    [(True, True, 3, 4), (True, False, 2, 3), (False, True, 2, 3), (False, False, 1, 1)],
)
def test_no_product_is_done_for_what_needs_no_gradient(
    hidden: bool, weight: bool, in_forward: int, by_recompute: int
) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        p = problem(301, 16, 40, dtype)
        assert products(wanting(p, hidden=hidden, weight=weight), total_in_forward, chunk=7) == in_forward
        assert products(wanting(p, hidden=hidden, weight=weight), total_by_recompute, chunk=7) == by_recompute


@both_ways
def test_what_needs_no_gradient_gets_none_and_the_rest_is_the_same(total: Total) -> None:
    p = problem(bias=True)
    whole = wanting(p, hidden=True, weight=True, bias=True)
    total(whole, chunk=7).backward()
    for hidden, weight, bias in [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]:
        part = wanting(p, hidden=hidden, weight=weight, bias=bias)
        total(part, chunk=7).backward()
        for name, wants in (("hidden", hidden), ("weight", weight), ("bias", bias)):
            got, want = getattr(part, name).grad, getattr(whole, name).grad
            assert torch.equal(got, want) if wants else got is None, name


@both_ways
def test_without_gradient_mode_nothing_is_taken(total: Total) -> None:
    p = problem().fresh()
    with torch.no_grad():
        assert products(p, total) == 1
        assert not total(p).requires_grad


def test_rows_of_no_weight_stay_out_of_the_backward_products() -> None:
    p = problem(301, 16, 40)
    p.row_weight[::2] = 0
    assert products(p.fresh(), total_in_forward, chunk=8) == 1 + 2 * 0.5
    assert products(p.fresh(), total_by_recompute, chunk=8) == 2 + 2 * 0.5
    for path in (fused, recomputed):
        got = path(p, "ranktuner", 8)
        assert_same(got, judged(p, "ranktuner"), p)
        assert torch.count_nonzero(got.gradients[0][::2]) == 0
        assert (got.gradients[0][1::2].abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("kept", [[], [0], [39], [0, 39], list(range(20, 40)), list(range(0, 40, 3))])
def test_whichever_rows_have_weight(kept: list[int]) -> None:
    """Rows are moved in place before the products: every pattern of holes must find its way back."""
    p = problem(37, 8, 40)
    p.row_weight[[i for i in range(40) if i not in kept]] = 0
    for chunk in (1, 13, 40):
        got = fused(p, "sft", chunk)
        assert_same(got, judged(p, "sft"), p)
        assert (got.gradients[0].abs().sum(dim=1) > 0).nonzero()[:, 0].tolist() == kept


# ---------------------------------------------------------------- memory


class Largest(TorchDispatchMode):
    """Records the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else [out]:
            if isinstance(t, Tensor):
                self.numel = max(self.numel, t.untyped_storage().nbytes() // t.element_size(), t.numel())
        return out


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_tensor_of_all_logits_is_ever_made(total: Total, dtype: torch.dtype) -> None:
    n, vocab, width, chunk = 600, 2000, 8, 50
    for spec in ("sft", "entropy-reg", "eaft", "deft"):
        p = problem(vocab, width, n, dtype, bias=True, softcap=9.0, scale=1.3).fresh()
        with Largest() as largest:
            total(p, spec, chunk=chunk, needs=method(spec).needs).backward()
        assert largest.numel >= chunk * vocab, "the recorder must see the chunk's logits"
        assert largest.numel <= chunk * vocab, f"{largest.numel / vocab:.0f} rows of logits at once"


def test_the_recorder_would_see_all_logits() -> None:
    p = problem(2000, 8, 600).fresh()
    with Largest() as largest:
        torch.nn.functional.cross_entropy(p.hidden @ p.weight.T, p.target).backward()
    assert largest.numel >= 600 * 2000


def test_chunks_chosen_from_the_sizes() -> None:
    def rows(n: int, vocab: int, width: int, dtype: torch.dtype) -> int:
        return chunk_rows(n, Head(torch.empty(vocab, width, dtype=dtype, device="meta")), None)

    for vocab, width in ((49_152, 576), (151_936, 1536), (262_144, 640), (32_000, 4096)):
        for dtype in (torch.float32, torch.bfloat16):
            gradient = max(vocab * width * 4, 64 << 20)
            logits = rows(100_000, vocab, width, dtype) * vocab * dtype.itemsize
            assert logits <= min(gradient, 1 << 30)
            assert logits >= 0.8 * min(gradient, 1 << 30), "a smaller chunk costs additions"
    assert rows(10, 49_152, 576, torch.float32) == 10
    assert rows(1, 1_000_000, 8, torch.float32) == 1
    assert rows(10_000, 4_000_000, 8, torch.float32) == pytest.approx(32, abs=1), "never so few that products starve"
    assert rows(4096, 49_152, 576, torch.float32) * 8 == 4096, "the rows are dealt out evenly"


@both_ways
def test_a_forward_that_is_dropped_frees_its_hidden_states(total: Total) -> None:
    """Without the collector: an output on its own node would be a cycle and keep a step's activations."""
    gc.collect()
    gc.disable()
    try:
        p = problem().fresh()
        hidden = p.hidden * 1.0
        seen = weakref.ref(hidden)
        loss = total(replace(p, hidden=hidden))
        del hidden
        assert loss.requires_grad
        del loss
        assert seen() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------- backward


def test_a_second_backward_through_gradients_given_away_is_refused() -> None:
    p = problem().fresh()
    loss = total_in_forward(p)
    loss.backward(retain_graph=True)
    with pytest.raises(UnsupportedError, match=r"backward was called twice.*run the forward again, or use"):
        loss.backward()


def test_a_recomputed_loss_can_go_backward_twice() -> None:
    p = problem().fresh()
    loss = total_by_recompute(p, chunk=7)
    loss.backward(retain_graph=True)
    assert p.weight.grad is not None
    once = p.weight.grad.clone()
    loss.backward()
    assert torch.allclose(p.weight.grad, 2 * once, rtol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("chunk", [None, 7])
def test_the_incoming_gradient_is_not_rounded_to_the_dtype(chunk: int | None, dtype: torch.dtype) -> None:
    """1000/3777 in bf16 is off by 3e-3, and would put every element off by the same share."""
    p = problem(301, 16, 41, dtype).fresh()
    one = torch.autograd.grad(total_in_forward(p, chunk=chunk), p.leaves)
    scaled = torch.autograd.grad(total_in_forward(p, chunk=chunk) * (1000 / 3777), p.leaves)
    for g, s in zip(one, scaled, strict=True):
        ratio = (s.double() * g.double()).sum() / g.double().square().sum()
        assert float(ratio) == pytest.approx(1000 / 3777, rel=1e-3 if dtype is torch.bfloat16 else 5e-5)


@both_ways
def test_gradients_add_up_over_micro_batches(total: Total) -> None:
    p, want = problem(n=40).fresh(), problem(n=40).fresh()
    total(want, "ranktuner").backward()
    for part in (slice(0, 25), slice(25, 26), slice(26, 40)):
        total(rows_of(p, part), "ranktuner").backward()
    for name in ("hidden", "weight"):
        assert error(getattr(p, name).grad, getattr(want, name).grad) < 1e-13


def test_signals_go_through_any_loss() -> None:
    """nll and entropy are differentiable each for itself, with gradients of any stride."""
    p = problem(37, 8, 17)
    for pick in (
        lambda s: s.nll.sum(),
        lambda s: s.entropy_bits.square().sum(),
        lambda s: (s.nll * s.entropy_bits)[::2].mean(),
    ):
        a, b = p.fresh(), p.fresh()
        logp = torch.log_softmax(b.hidden @ b.weight.T, dim=1)
        dense = Signals(
            -logp.gather(1, b.target[:, None])[:, 0], b.target, b.target > 0,
            -(logp.exp() * logp).sum(dim=1) / math.log(2), b.row_weight, b.seq, 37,
        )  # fmt: skip
        got = torch.autograd.grad(pick(signals_of(a, needs=["entropy_grad"], chunk=5)), a.leaves)
        want = torch.autograd.grad(pick(dense), b.leaves)
        for g, w in zip(got, want, strict=True):
            assert error(g, w) < 1e-12


def test_autograds_own_check() -> None:
    p = problem(7, 3, 5, bias=True, softcap=5.0, scale=-1.4).fresh()

    def both(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        own = replace(p, hidden=hidden, weight=weight, bias=bias)
        signals = signals_of(own, needs=["entropy_grad"], chunk=2)
        return signals.nll, signals.entropy_bits

    assert torch.autograd.gradcheck(both, tuple(p.leaves))


# ---------------------------------------------------------------- dtypes


@both_ways
def test_autocast_computes_in_its_dtype_and_answers_in_the_parameters(total: Total) -> None:
    p = problem(301, 16, 41, torch.float32).fresh()
    with torch.autocast("cpu", torch.bfloat16):
        loss = total(p, "ranktuner", chunk=7)
        seen = torch.nn.functional.linear(p.hidden, p.weight)
    assert seen.dtype is torch.bfloat16
    loss.backward()
    low = replace(p, hidden=p.hidden.detach().bfloat16(), weight=p.weight.detach().bfloat16())
    want = judged(low, "ranktuner")
    assert loss.dtype is torch.float32
    assert error(loss.detach() / COUNT, want.loss) < 4e-6
    for leaf, w in zip(p.leaves, want.gradients, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.dtype is torch.float32
        assert error(leaf.grad / COUNT, w) < 8e-3


@both_ways
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gradients_have_the_dtype_of_their_tensors(total: Total, dtype: torch.dtype) -> None:
    p = problem(dtype=dtype, bias=True).fresh()
    loss = total(p)
    assert loss.dtype is torch.promote_types(dtype, torch.float32)
    for g, leaf in zip(torch.autograd.grad(loss, p.leaves), p.leaves, strict=True):
        assert (g.dtype, g.shape) == (dtype, leaf.shape)


def test_the_head_gradient_adds_up_in_fp32() -> None:
    """Over 400 chunks a sum kept in bf16 would be off by 1 to 2 %; kept in fp32 it costs one rounding."""
    p = problem(11, 4, 400, torch.bfloat16)
    got = fused(p, "sft", 1).gradients[1]
    want = judged(p, "sft").gradients[1]
    assert error(got, want) < 4e-3
    naive = torch.zeros_like(got)
    for i in range(400):
        naive += judged(rows_of(p, slice(i, i + 1)), "sft").gradients[1].bfloat16()
    assert error(naive, want) > 1e-2, "this test must be able to fail"


def test_labels_may_be_int32() -> None:
    p = problem()
    short = replace(p, target=p.target.int())
    for path in (fused, recomputed):
        assert torch.equal(path(short, "sft").loss, path(p, "sft").loss)


# ---------------------------------------------------------------- no token at all


@pytest.mark.parametrize("spec", ["sft", "ranktuner", "entropy-reg"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_all_masked_batch_has_a_loss_of_zero_with_a_gradient_path(spec: str, dtype: torch.dtype) -> None:
    p = problem(37, 8, 0, dtype, bias=True).fresh()
    out = sums_of(p, primed(spec, torch.ones(1), torch.zeros(1)).terms)
    assert out.total.item() == 0
    assert out.total.requires_grad
    assert len(out.signals) == 0
    assert out.left_out == 0
    out.total.backward()
    for leaf in p.leaves:
        assert leaf.grad is not None
        assert leaf.grad.shape == leaf.shape
        assert torch.count_nonzero(leaf.grad) == 0


# ---------------------------------------------------------------- the callable


def test_terms_are_called_once_for_each_chunk_without_gradient() -> None:
    seen: list[int] = []

    def terms(signals: Signals) -> RowTerms:
        assert not torch.is_grad_enabled()
        assert not signals.nll.requires_grad
        seen.append(len(signals))
        return RowTerms(torch.ones_like(signals.nll))

    p = problem(n=41).fresh()
    out = sums_of(p, terms, chunk=12)
    assert seen == [12, 12, 12, 5]
    assert torch.equal(out.terms.w_nll, p.row_weight.double()), "the terms as used, row weights multiplied in"
