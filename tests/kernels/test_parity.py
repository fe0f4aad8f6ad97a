"""Both fused paths against the loss written out in float64: every method, dtype, head and awkward size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from written_out import (
    BATCH_METHODS,
    COUNT,
    DTYPES,
    HEADS,
    SIZES,
    TOKEN_METHODS,
    Outcome,
    Problem,
    assert_same,
    assert_same_signals,
    error,
    fused,
    gradients_of,
    judged,
    problem,
    recomputed,
    rounded_logits,
    signals_of,
    sums_of,
)

from ranktuner.errors import UnsupportedError
from ranktuner.loss import dense_loss
from ranktuner.registry import method, names
from ranktuner.signals import signals_from_logits

SOME_METHODS = ["sft", "ranktuner(prior=prob)", "entropy-reg(alpha=0.7)", "deft"]
FUSED_FP16 = 5e-3
"""Gradients taken before the loss is scaled: weights near 0 (focal at p near 1) leave few digits in float16."""

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_size = pytest.mark.parametrize("size", SIZES)


def compare(p: Problem, spec: str, chunk: int | None) -> None:
    want = judged(p, spec)
    assert_same(recomputed(p, spec, chunk), want, p)
    if spec not in BATCH_METHODS:
        loose = FUSED_FP16 if p.hidden.dtype is torch.float16 and not p.softcap else None
        assert_same(fused(p, spec, chunk), want, p, loose)


@each_dtype
@each_size
@pytest.mark.parametrize("spec", [*TOKEN_METHODS, *BATCH_METHODS])
def test_every_method(spec: str, size: str, dtype: torch.dtype) -> None:
    vocab, width, n, chunk = SIZES[size]
    compare(problem(vocab, width, n, dtype), spec, chunk)


@each_dtype
@each_size
@pytest.mark.parametrize("spec", SOME_METHODS)
@pytest.mark.parametrize("head", HEADS)
def test_every_head(head: str, spec: str, size: str, dtype: torch.dtype) -> None:
    vocab, width, n, chunk = SIZES[size]
    compare(problem(vocab, width, n, dtype, **HEADS[head]), spec, chunk)  # type: ignore[arg-type]


def test_the_table_names_every_method() -> None:
    assert {spec.split("(")[0] for spec in TOKEN_METHODS} == set(names())


def test_the_vocabulary_of_a_real_model() -> None:
    p = problem(152_064, 16, 9, torch.bfloat16)
    want = judged(p, "ranktuner(prior=prob)")
    assert_same(fused(p, "ranktuner(prior=prob)", 4), want, p)
    assert_same(recomputed(p, "ranktuner(prior=prob)", 4), want, p)


@each_dtype
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("path", [fused, recomputed])
def test_signals(path: object, head: str, dtype: torch.dtype) -> None:
    """Ranks exactly: both sides read them from the same rounded product."""
    p = problem(301, 16, 41, dtype, **HEADS[head])  # type: ignore[arg-type]
    got = path(p, "ranktuner", 7).signals  # type: ignore[operator]
    assert_same_signals(got, judged(p, "ranktuner").signals, 1e-11 if dtype is torch.float64 else 4e-6)


@each_dtype
def test_extra_signals(dtype: torch.dtype) -> None:
    p = problem(301, 16, 41, dtype, softcap=6.0)
    wanted = ["topk_entropy:20", "sum_p2", "mass_above", "expected_rank"]
    got = signals_of(p, needs=wanted, chunk=7)
    assert all(getattr(got, name.split(":")[0]) is not None for name in wanted)
    want = judged(p, "eaft").signals
    # E[R] can be as large as V: 1e-6 of itself is what it promises
    assert_same_signals(got, want, 1e-11 if dtype is torch.float64 else 4e-6)
    in_forward = sums_of(p, method("sft").terms, needs=wanted, chunk=7).signals
    assert_same_signals(in_forward, want, 1e-11 if dtype is torch.float64 else 4e-6)


def test_extra_signals_only_when_asked_for() -> None:
    p = problem()
    for got in (signals_of(p), sums_of(p, method("sft").terms).signals):
        assert got.topk_entropy is got.sum_p2 is got.mass_above is got.expected_rank is None


@each_dtype
def test_dense_path_of_the_package(dtype: torch.dtype) -> None:
    """`dense_loss` on the model's own logits: the same loss; its gradient differs by the dtype's roundings only."""
    for spec in SOME_METHODS:
        p = problem(301, 16, 41, dtype).fresh()
        out = dense_loss(rounded_logits(p), p.target, spec, seq_N=p.seq, num_tokens=COUNT, row_weight=p.row_weight)
        dense = Outcome(out.loss.detach(), gradients_of(out.loss, p), judged(p, spec).signals)
        want = judged(p, spec)
        assert_same(dense, want, p)
        assert_same(fused(p, spec, 7), want, p)
        assert error(dense.loss, fused(p, spec, 7).loss) <= (1e-13 if dtype is torch.float64 else 2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_softcap_costs_about_the_digits_it_costs_torch(dtype: torch.dtype) -> None:
    """The wide tolerance of capped heads is the dtype's: autograd's tanh has it too, less one rounding (of c t)."""
    own, theirs = 0.0, 0.0
    for seed in range(8):
        p = problem(301, 16, 41, dtype, softcap=10.0, scale=2.0, seed=seed).fresh()
        want = judged(p, "sft").gradients
        logits = rounded_logits(p).float()
        nll = torch.nn.functional.cross_entropy(logits, p.target, reduction="none")
        dense = gradients_of((nll * p.row_weight).sum() / COUNT, p)
        theirs += sum(error(g, w) for g, w in zip(dense, want, strict=True))
        own += sum(error(g, w) for g, w in zip(fused(p, "sft", 7).gradients, want, strict=True))
    assert own <= 1.5 * theirs


# ---------------------------------------------------------------- what a row weight, -inf, a tie and a chunk do


def test_row_weights_multiply_the_nll_term_alone() -> None:
    p = problem()
    doubled = replace(p, row_weight=2 * p.row_weight)
    for path in (fused, recomputed):
        for g, w in zip(path(doubled, "dft", 3).gradients, path(p, "dft", 3).gradients, strict=True):
            assert error(g, 2 * w) < 1e-13
        plain, twice = path(p, "entropy-reg(alpha=0.7)", 3), path(doubled, "entropy-reg(alpha=0.7)", 3)
        nll = path(p, "sft", 3)
        assert float(twice.loss - plain.loss) == pytest.approx(float(nll.loss), rel=1e-12)


@each_dtype
def test_tokens_masked_out_by_a_bias_of_minus_infinity(dtype: torch.dtype) -> None:
    p = problem(37, 8, 23, dtype, bias=True)
    assert p.bias is not None
    allowed = torch.ones(37, dtype=torch.bool)
    allowed[p.target] = False
    p.bias[allowed.nonzero()[::2, 0]] = -torch.inf
    gone = torch.isneginf(p.bias)
    assert 3 < int(gone.sum()) < 30
    for spec in ("sft", "entropy-reg(alpha=0.7)", "deft"):
        want = judged(p, spec)
        for path in (fused, recomputed):
            got = path(p, spec, 5)
            assert_same(got, want, p)
            for g in got.gradients[1:]:
                assert torch.count_nonzero(g[gone]) == 0, "a token that cannot be said has no gradient"


@pytest.mark.parametrize("chunk", [1, 7, None])
def test_ranks_count_ties_in_bf16(chunk: int | None) -> None:
    """R = count(z >= z_label) of the rounded logits: in bf16 many tie, and the two ways to count differ."""
    p = problem(2000, 16, 64, torch.bfloat16, scale=0.25)
    z = rounded_logits(p)
    label = z.gather(1, p.target[:, None])
    strict, ties = (z > label).sum(dim=1) + 1, (z >= label).sum(dim=1)
    assert int((strict != ties).sum()) > 20, "a test of ties needs some"
    assert signals_of(p, chunk=chunk).rank.tolist() == ties.tolist()
    assert sums_of(p, method("sft").terms, chunk=chunk).signals.rank.tolist() == ties.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ranks_flip_only_where_products_round_apart(dtype: torch.dtype) -> None:
    """Chunks of the same rows give the dense path's ranks; a product of other shape may round some logits otherwise."""
    p = problem(5000, 64, 96, dtype)
    dense = signals_from_logits(rounded_logits(p), p.target).rank
    assert int((signals_of(p, chunk=96).rank != dense).sum()) == 0
    flips = int((signals_of(p, chunk=11).rank != dense).sum())
    assert flips <= 2, f"{flips} of 96 ranks flipped"


@each_dtype
def test_chunks_do_not_change_the_loss(dtype: torch.dtype) -> None:
    p = problem(301, 16, 41, dtype)
    losses: list[Tensor] = [fused(p, "ranktuner", chunk).loss for chunk in (1, 2, 7, 40, 41, 100, None)]
    assert max(error(loss, losses[-1]) for loss in losses) <= (1e-13 if dtype is torch.float64 else 1e-6)


@pytest.mark.parametrize("path", [fused, recomputed])
def test_the_mixed_target_is_refused_by_name(path: object) -> None:
    with pytest.raises(UnsupportedError, match=r"overtone\(mode=mix\) needs the whole predicted distribution.*dense"):
        path(problem(), "overtone(mode=mix)")  # type: ignore[operator]
