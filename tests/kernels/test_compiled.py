"""The compiled row pass: the same numbers, and one compilation for each dtype and vocabulary, whatever the chunks.

Compiling takes seconds (less from inductor's cache), so there are few cases here and each does all it can.
"""

from __future__ import annotations

import shutil

import pytest
import row_cases
import torch
from torch._dynamo.utils import counters
from written_out import assert_same, fused, judged, problem, recomputed

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)")
SWEEPS = 2
"""Compiled functions: statistics and gradient."""


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_one_compilation_for_a_dtype_and_a_vocabulary(dtype: torch.dtype) -> None:
    """Over chunk sizes, numbers of tokens, last chunks of one row, both ways backward, budgets and head kinds."""
    before = graphs()
    for n, chunk in ((41, 7), (41, None), (12, 4), (64, 64), (9, 8), (200, 33)):
        p = problem(301, 16, n, dtype, bias=n == 12, scale=0.5 if n == 64 else 1.0)
        for spec in ("ranktuner(prior=prob)", "deft"):
            want = judged(p, spec)
            assert_same(fused(p, spec, chunk, "compiled"), want, p)
            assert_same(recomputed(p, spec, chunk, "compiled"), want, p)
    fused(p, "sft", 64, "compiled", grad_budget=0.1)
    assert graphs() - before == SWEEPS


def test_entropy_terms_and_softcap_are_terms_of_their_own() -> None:
    before = graphs()
    for n, chunk in ((41, 7), (30, None)):
        p = problem(301, 16, n, torch.bfloat16, softcap=8.0)
        want = judged(p, "entropy-reg(alpha=0.7)")
        assert_same(fused(p, "entropy-reg(alpha=0.7)", chunk, "compiled"), want, p)
        assert_same(recomputed(p, "entropy-reg(alpha=0.7)", chunk, "compiled"), want, p)
    assert graphs() - before <= SWEEPS


def test_hard_rows() -> None:
    """The vocabulary of the tests above, so that no new one is compiled."""
    before = graphs()
    logits, target = row_cases.hard_logits(301, torch.bfloat16)
    with torch.no_grad():  # as the kernels call it
        row_cases.check_sums("compiled", logits, target)
        row_cases.check_gradient_of("compiled", logits, target, None)
    assert graphs() - before <= 1, "entropy terms without a softcap are new here; expanded weights are not"
