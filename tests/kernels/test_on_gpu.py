"""The same checks on a CUDA device, with the Triton kernels compiled: `make test-gpu`."""

from __future__ import annotations

import pytest
import row_cases
import torch
from row_cases import LOW, VOCABULARIES
from written_out import DTYPES, HEADS, TOKEN_METHODS, assert_same, fused, judged, problem, recomputed, sums_of

from ranktuner.kernels import rows
from ranktuner.registry import method

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
each_way = pytest.mark.parametrize("how", ["triton", "plain"])
each_dtype = pytest.mark.parametrize("dtype", LOW, ids=str)


@pytest.fixture(autouse=True)
def true_fp32() -> None:
    """TF32 products would differ from the judge's by a thousandth."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def test_triton_is_what_runs_by_default() -> None:
    assert rows.choose(torch.zeros(4, 9, device="cuda")) == "triton"


@each_way
@each_dtype
@pytest.mark.parametrize("vocab", [*VOCABULARIES, 4097, 152_064])
def test_row_pass(vocab: int, dtype: torch.dtype, how: rows.Implementation) -> None:
    logits, target = row_cases.hard_logits(vocab, dtype, "cuda", count=1)
    row_cases.check_sums(how, logits, target)
    row_cases.check_gradient(how, logits, target)


@each_way
def test_broken_rows(how: rows.Implementation) -> None:
    row_cases.check_broken_rows(how, "cuda")


@each_way
@each_dtype
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("spec", ["sft", "ranktuner(prior=prob)", "entropy-reg(alpha=0.7)", "deft"])
def test_every_head(spec: str, head: str, dtype: torch.dtype, how: str) -> None:
    row_cases.check_paths(how, dtype, head, spec, "cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", TOKEN_METHODS)
def test_every_method(spec: str, dtype: torch.dtype) -> None:
    row_cases.check_paths("auto", dtype, "linear", spec, "cuda")


def test_the_vocabulary_of_a_real_model() -> None:
    p = problem(152_064, 64, 100, torch.bfloat16, device="cuda")
    want = judged(p, "ranktuner(prior=prob)")
    assert_same(fused(p, "ranktuner(prior=prob)", 33, "triton"), want, p)
    assert_same(recomputed(p, "ranktuner(prior=prob)", 33, "triton"), want, p)


def test_chunks_beyond_two_to_the_31_logits() -> None:
    p = problem(152_064, 8, 15_000, torch.bfloat16, device="cuda")
    whole = fused(p, "sft", 15_000, "triton")
    parts = fused(p, "sft", 1000, "triton")
    assert float(whole.loss) == pytest.approx(float(parts.loss), rel=1e-5)
    for a, b in zip(whole.gradients, parts.gradients, strict=True):
        assert float((a - b).norm() / b.norm()) < 8e-3


def test_the_budget_is_kept() -> None:
    p = problem(301, 16, 200, torch.float32, device="cuda").fresh()
    out = sums_of(p, method("sft").terms, chunk=64, grad_budget=0.05)
    assert 0 < float(out.left_out) <= 0.05


def test_memory_stays_below_a_chunk_and_the_heads_gradient() -> None:
    p = problem(32_000, 512, 8192, torch.bfloat16, device="cuda").fresh()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    sums_of(p, method("ranktuner").terms).total.backward()
    gradient, logits = 32_000 * 512 * 4, 8192 * 32_000 * 2
    assert torch.cuda.max_memory_allocated() - before < 4 * gradient < logits
