"""The Triton kernels in Triton's interpreter. Run by test_triton.py in a process of its own: the interpreter is chosen
when Triton is imported, and then holds for everything in the process."""

from __future__ import annotations

import pytest
import row_cases
import torch
from row_cases import LOW, VOCABULARIES
from written_out import HEADS, TOKEN_METHODS, assert_same, fused, judged, problem

from ranktuner.kernels import rows, triton_rows

each_dtype = pytest.mark.parametrize("dtype", LOW, ids=str)


@pytest.fixture(autouse=True)
def interpreted() -> None:
    assert triton_rows.interpreted(), "these tests prove nothing unless the interpreter runs them"


@pytest.fixture(params=[(1024, 8), (16, 4)], ids=["one tile", "many tiles"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in zip(("LANES", "DEPTH"), request.param, strict=True):
        monkeypatch.setattr(triton_rows, name, size)


@each_dtype
@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.usefixtures("tile")
def test_sums(vocab: int, dtype: torch.dtype) -> None:
    row_cases.check_sums("triton", *row_cases.hard_logits(vocab, dtype))


@each_dtype
@pytest.mark.parametrize("vocab", [17, 301])
def test_gradient(vocab: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_rows, "TILE", 64)
    row_cases.check_gradient("triton", *row_cases.hard_logits(vocab, dtype, count=1))


@pytest.mark.parametrize("vocab", [4097, 152_064])
def test_large_vocabularies(vocab: int) -> None:
    logits, target = row_cases.hard_logits(vocab, torch.bfloat16)
    some = [0, 2]  # normal, heavy tail
    row_cases.check_sums("triton", logits[some], target[some])
    row_cases.check_gradient("triton", logits[:1], target[:1])


@pytest.mark.usefixtures("tile")
def test_broken_rows() -> None:
    row_cases.check_broken_rows("triton")


def test_rows_beyond_two_to_the_31_elements() -> None:
    """The second row begins at element 2^31; the memory between is never touched."""
    far = torch.empty(2**31 + 64, dtype=torch.bfloat16).as_strided((2, 37), (2**31, 1))
    near = torch.randn(2, 37).bfloat16()
    far.copy_(near)
    target = torch.tensor([3, 5])
    row_cases.check_sums("triton", far, target)
    stats = rows.statistics(near, target, rows.Needs(), "triton")
    for logits in (near, far):
        rows.write_gradient(logits, target, stats, torch.ones(2), None, None, "triton")
    assert torch.equal(near, far)


def test_no_rows() -> None:
    top, total, weighted, rank = triton_rows.sums(torch.empty(0, 37), torch.empty(0, 1))
    assert len(top) == len(total) == len(weighted) == len(rank) == 0
    none = torch.empty(0)
    triton_rows.gradient(torch.empty(0, 37), none, none, None, none, None)


@each_dtype
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("spec", ["ranktuner(prior=prob)", "entropy-reg(alpha=0.7)"])
def test_paths(spec: str, head: str, dtype: torch.dtype) -> None:
    row_cases.check_paths("triton", dtype, head, spec)


@pytest.mark.parametrize("spec", TOKEN_METHODS)
def test_every_method(spec: str) -> None:
    p = problem(37, 8, 11, torch.float32)
    assert_same(fused(p, spec, 4, "triton"), judged(p, spec), p)


def test_the_kernels_really_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("sums", "gradient"):
        kernel = getattr(triton_rows, name)
        monkeypatch.setattr(triton_rows, name, lambda *args, _k=kernel, _n=name: calls.append(_n) or _k(*args))
    fused(problem(37, 8, 12, torch.float32), "sft", 6, "triton")
    assert calls.count("sums") == 2
    assert calls.count("gradient") == 2
