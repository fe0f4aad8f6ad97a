"""Gradients: p - onehot times the oracle's weight, autograd of the written-out losses, micro-batches that add up."""

from __future__ import annotations

import dataclasses
import math

import oracle
import pytest
import torch
import weightings
from drawn import Row, hard, judged, rows, short_rows, tensors
from hypothesis import given
from mpmath import mp
from test_loss import FAMILIES, batch, sizes

from ranktuner.loss import dense_loss, weighted_loss
from ranktuner.registry import method
from ranktuner.signals import signals_from_logits


def gradient_of(logits_NV: torch.Tensor, target_N: torch.Tensor, spec: str, count: float) -> torch.Tensor:
    leaf = logits_NV.detach().clone().requires_grad_()
    dense_loss(leaf, target_N, spec, num_tokens=count).loss.backward()
    assert leaf.grad is not None
    return leaf.grad


def judged_gradient(spec: str, t: oracle.Token) -> list[float]:
    """w (p - onehot), and for entropy-reg alpha p (ln p + H) on top."""
    w = float(mp.exp(weightings.log_weight(spec, t)))
    logp = oracle.log_probs(list(t.logits))
    gradient = [w * (math.exp(lp) - (v == t.label)) for v, lp in enumerate(logp)]
    if weightings.TABLE[spec][0] == "entropy-reg":
        nats = t.entropy_bits * math.log(2)
        gradient = [
            g + 0.02 * math.exp(lp) * (lp + nats) if lp > -745 else g for g, lp in zip(gradient, logp, strict=True)
        ]
    return gradient


# ---------------------------------------------------------------- one token at a time


@pytest.mark.parametrize("spec", weightings.SHORT)
def test_every_method_has_the_oracles_gradient(spec: str) -> None:
    logits_NV, target_N = batch()
    got = gradient_of(logits_NV, target_N, spec, count=5)
    for row, t in zip(got.tolist(), judged(logits_NV, target_N), strict=True):
        want = [g / 5 for g in judged_gradient(spec, t)]
        scale = max(1.0, max(map(abs, want)))
        assert row == pytest.approx(want, abs=1e-12 * scale)


@given(row=short_rows())
@hard(150)
def test_gradients_of_whatever_hypothesis_draws(row: Row) -> None:
    logits_NV, target_N = tensors([row])
    (t,) = judged(logits_NV, target_N)
    for spec in ("sft", "entropy-reg", "dft"):
        got = gradient_of(logits_NV, target_N, spec, count=1)[0].tolist()
        assert got == pytest.approx(judged_gradient(spec, t), abs=1e-12)


@pytest.mark.parametrize("spec", ["sft", "ranktuner", "ranktuner(prior=prob)", "chord"])
def test_l1_norm_of_a_rows_gradient_is_twice_w_times_one_minus_p(spec: str) -> None:
    logits_NV, target_N = batch()
    signals = signals_from_logits(logits_NV, target_N)
    got = gradient_of(logits_NV, target_N, spec, count=1).abs().sum(dim=1)
    want = 2 * method(spec).weights(signals) * (1 - signals.p)
    assert torch.allclose(got, want, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("spec", ["sft", "ranktuner", "ranktuner(prior=prob)", "entropy-reg"])
def test_low_precision_gradients(spec: str, dtype: torch.dtype) -> None:
    """Right to one rounding of the logits' own dtype: the arithmetic inside is float32."""
    logits_NV, target_N = batch()
    low = logits_NV.to(dtype)
    got = gradient_of(low, target_N, spec, count=1)
    assert got.dtype is dtype
    want = gradient_of(low.double(), target_N, spec, count=1)
    info = torch.finfo(dtype)
    assert torch.allclose(got.double(), want, rtol=2 * info.eps, atol=2e-6 + info.smallest_normal)


@pytest.mark.parametrize("chunk", [1, 5, 18])
def test_chunks_have_the_gradient_of_the_whole(chunk: int) -> None:
    logits_NV, target_N = batch()
    grads = []
    for rows_at_a_time in (None, chunk):
        leaf = logits_NV.clone().requires_grad_()
        signals = signals_from_logits(leaf, target_N, needs=["entropy_grad"], chunk=rows_at_a_time)
        weighted_loss(signals, "entropy-reg(alpha=0.3)").loss.backward()
        grads.append(leaf.grad)
    assert torch.allclose(grads[0], grads[1], rtol=1e-14, atol=1e-16)  # type: ignore[arg-type]


def test_autograds_own_check_of_nll_and_entropy() -> None:
    logits_NV, target_N = tensors(rows(7, seed=4, families=("normal", "ties", "heavy-tail"), count=2))

    def both(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        signals = signals_from_logits(logits, target_N, needs=["entropy_grad"], chunk=4)
        return signals.nll, signals.entropy_bits

    assert torch.autograd.gradcheck(both, (logits_NV.requires_grad_(),), atol=1e-8)


def test_only_what_was_asked_for_carries_a_gradient() -> None:
    logits_NV, target_N = batch()
    signals = signals_from_logits(
        logits_NV.requires_grad_(), target_N, needs=["sum_p2", "mass_above", "topk_entropy:5"]
    )
    assert signals.nll.requires_grad
    for name in ("entropy_bits", "p_max", "sum_p2", "mass_above", "topk_entropy", "rank", "is_top"):
        assert not getattr(signals, name).requires_grad, name


# ---------------------------------------------------------------- losses written out


def written_out(spec: str, logits_NV: torch.Tensor, target_N: torch.Tensor) -> torch.Tensor:
    logp = torch.log_softmax(logits_NV, dim=1)
    label = logp.gather(1, target_N[:, None])[:, 0]
    if spec == "entropy-reg":
        return (-label + 0.02 * (logp.exp() * logp).sum(dim=1)).mean()
    alpha = {"alpha-power": 0.5, "alpha-power(alpha=1)": 1.0}[spec]
    return ((1 - label.exp() ** alpha) / alpha).mean()


@pytest.mark.parametrize("spec", ["alpha-power", "alpha-power(alpha=1)", "entropy-reg"])
def test_value_and_gradient_are_those_of_the_loss_written_out(spec: str) -> None:
    logits_NV, target_N = tensors(rows(37, seed=15, families=FAMILIES[:5], count=4))
    leaf = logits_NV.clone().requires_grad_()
    want = written_out(spec, leaf, target_N)
    want.backward()
    assert leaf.grad is not None
    assert dense_loss(logits_NV, target_N, spec).loss.item() == pytest.approx(want.item(), rel=1e-13)
    got = gradient_of(logits_NV, target_N, spec, count=len(target_N))
    assert torch.allclose(got, leaf.grad, rtol=1e-11, atol=1e-16)


def test_the_papers_view_of_the_logit_gradient() -> None:
    """With s = 1 and K = 1/2, p (p s)^-K nll has the gradient of (1 - p^0.5)/0.5."""
    logits_NV, target_N = tensors(rows(37, seed=16, families=FAMILIES[:5], count=4))
    leaf = logits_NV.clone().requires_grad_()
    signals = signals_from_logits(leaf, target_N)
    certain = dataclasses.replace(
        signals, entropy_bits=torch.zeros_like(signals.p_max), p_max=torch.ones_like(signals.p_max)
    )
    weighted_loss(certain, "ranktuner(prior=prob, k=0.5)").loss.backward()
    other = logits_NV.clone().requires_grad_()
    written_out("alpha-power", other, target_N).backward()
    assert leaf.grad is not None
    assert other.grad is not None
    assert torch.allclose(leaf.grad, other.grad, rtol=1e-11, atol=1e-16)


# ---------------------------------------------------------------- micro-batches


def small_model() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """41 tokens of hidden size 16 before a head of 301 words; half of the labels are what the head says."""
    draw = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(41, 16, generator=draw, dtype=torch.float64)
    head_VD = torch.randn(301, 16, generator=draw, dtype=torch.float64)
    target_N = torch.randint(0, 301, (41,), generator=draw)
    target_N[::2] = (hidden_ND @ head_VD.T).argmax(dim=1)[::2]
    return hidden_ND, head_VD, target_N


def head_gradient(spec: str, parts: list[slice], count: float | None) -> torch.Tensor:
    """The head's gradient over micro-batches; without a count, each divides by its own: the mean of means."""
    hidden_ND, head_VD, target_N = small_model()
    head_VD.requires_grad_()
    for part in parts:
        out = dense_loss(hidden_ND[part] @ head_VD.T, target_N[part], spec, num_tokens=count)
        (out.loss if count else out.loss / len(parts)).backward()
    assert head_VD.grad is not None
    return head_VD.grad


WHOLE = [slice(0, 41)]


@pytest.mark.parametrize("spec", [*weightings.SHORT, "overtone(mode=mix)"])
def test_micro_batches_have_the_gradient_of_the_batch(spec: str) -> None:
    assert method(spec).scope == "token"
    want = head_gradient(spec, WHOLE, 41)
    got = head_gradient(spec, sizes(), 41)
    assert want.abs().max() > 1e-6, "a gradient of nothing would prove nothing"
    assert (got - want).abs().max() <= 1e-12 * max(1.0, want.abs().max().item())


@pytest.mark.parametrize("spec", ["sft", "dft", "ranktuner", "ranktuner(prior=prob)"])
def test_a_mean_of_means_would_not(spec: str) -> None:
    want = head_gradient(spec, WHOLE, 41)
    wrong = head_gradient(spec, sizes(), None)
    assert (wrong - want).norm() > 0.2 * want.norm()


def test_a_batch_scoped_method_says_so_and_does_differ() -> None:
    spec = "talr(tau=micro-batch)"
    assert method(spec).scope == "batch"
    want = head_gradient(spec, WHOLE, 41)
    assert (head_gradient(spec, sizes(), 41) - want).norm() > 1e-3 * want.norm()


def test_talr_one_step_behind_does_not_depend_on_micro_batches() -> None:
    hidden_ND, head_VD, target_N = small_model()
    seq_N = torch.arange(41) // 10
    grads = []
    for parts in (WHOLE, [slice(0, 30), slice(30, 40), slice(40, 41)]):
        chosen = method("talr")
        assert chosen.context is not None
        first = signals_from_logits(hidden_ND @ head_VD.T, target_N, seq_N)
        chosen.context.prime(first.nll, first.seq)
        weight = head_VD.clone().requires_grad_()
        for part in parts:
            signals = signals_from_logits(hidden_ND[part] @ weight.T, target_N[part], seq_N[part])
            weighted_loss(signals, chosen, num_tokens=41).loss.backward()
        grads.append(weight.grad)
    assert (grads[0] - grads[1]).abs().max() <= 1e-12  # type: ignore[operator]
