"""signals_from_logits and expected_rank against the oracle, in every dtype, on rows made to hurt."""

from __future__ import annotations

import math
from collections.abc import Callable

import oracle
import pytest
import torch
from drawn import Row, close, hard, judged, rows, short_rows, tensors
from hypothesis import given
from torch.utils._python_dispatch import TorchDispatchMode

from ranktuner.errors import InputError, NonFiniteError, RankTunerError
from ranktuner.signals import Signals, _expected_rank_by_torch, expected_rank, signals_from_logits

NEEDS = ("topk_entropy:20", "sum_p2", "mass_above")
ALL = (*NEEDS, "expected_rank", "entropy_grad")

# Statistics of low-precision logits are taken in float32, so all three share one tolerance: about 60 rounding errors,
# relative to the larger of 1 and the value. The oracle is given the rounded logits.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.bfloat16: 4e-6, torch.float16: 4e-6}
DTYPES = list(TOLERANCE)


def assert_agrees(signals: Signals, tokens: list[oracle.Token], tolerance: float, topk: int | None = 20) -> None:
    for i, t in enumerate(tokens):
        row = list(t.logits)
        assert signals.rank[i].item() == t.rank
        assert bool(signals.is_top[i]) == t.is_top
        pairs = {
            "nll": (signals.nll, t.nll),
            "p": (signals.p, float(t.p)),
            "entropy_bits": (signals.entropy_bits, t.entropy_bits),
            "p_max": (signals.p_max, t.p_max),
        }
        if topk:
            pairs["topk_entropy"] = (signals.topk_entropy, oracle.topk_entropy(row, topk))
        if signals.sum_p2 is not None:
            pairs["sum_p2"] = (signals.sum_p2, oracle.sum_p2(row))
        if signals.mass_above is not None:
            pairs["mass_above"] = (signals.mass_above, oracle.mass_above(row, t.label))
        for name, (column, want) in pairs.items():
            got = column[i].item()
            # e^-nll carries the absolute error of nll as a relative one
            scale = tolerance * max(1.0, t.nll if name == "p" and want > 0 else 0.0)
            assert close(got, want, scale), f"row {i}, {name}: {got!r}, the oracle says {want!r}"
            assert got >= 0, f"row {i}: {name} = {got!r}"


def assert_row_types(signals: Signals, dtype: torch.dtype) -> None:
    statistics = torch.float64 if dtype is torch.float64 else torch.float32
    for name in ("nll", "entropy_bits", "p_max"):
        assert getattr(signals, name).dtype is statistics, name
    assert signals.rank.dtype is torch.int64
    assert signals.is_top.dtype is torch.bool


# ---------------------------------------------------------------- agreement with the oracle


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(row=short_rows())
@hard(250)
def test_short_rows(dtype: torch.dtype, row: Row) -> None:
    logits_NV, target_N = tensors([row], dtype)
    signals = signals_from_logits(logits_NV, target_N, needs=NEEDS)
    assert_row_types(signals, dtype)
    assert_agrees(signals, judged(logits_NV, target_N), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [2, 3, 37, 1000])
def test_families(vocab: int, dtype: torch.dtype) -> None:
    logits_NV, target_N = tensors(rows(vocab, seed=vocab, count=3), dtype)
    signals = signals_from_logits(logits_NV, target_N, needs=NEEDS)
    assert_agrees(signals, judged(logits_NV, target_N), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_vocabulary_of_a_real_model(dtype: torch.dtype) -> None:
    families = ("heavy-tail", "near-one-hot", "ties", "masked") if dtype is torch.float64 else ("normal", "uniform")
    logits_NV, target_N = tensors(rows(152_064, seed=11, families=families), dtype)
    signals = signals_from_logits(logits_NV, target_N, needs=NEEDS)
    assert_agrees(signals, judged(logits_NV, target_N), TOLERANCE[dtype])


def test_extras_are_computed_only_when_asked_for() -> None:
    logits_NV, target_N = tensors(rows(37, seed=1))
    plain = signals_from_logits(logits_NV, target_N)
    assert plain.topk_entropy is None
    assert plain.sum_p2 is None
    assert plain.mass_above is None
    one = signals_from_logits(logits_NV, target_N, needs=["sum_p2"])
    assert one.sum_p2 is not None
    assert one.topk_entropy is None


@pytest.mark.parametrize("k", [2, 5, 36, 37, 1000])
def test_topk_entropy_for_any_k_and_clamped_to_the_vocabulary(k: int) -> None:
    logits_NV, target_N = tensors(rows(37, seed=k))
    signals = signals_from_logits(logits_NV, target_N, needs=[f"topk_entropy:{k}"])
    assert_agrees(signals, judged(logits_NV, target_N), 1e-12, topk=min(k, 37))


@pytest.mark.parametrize("chunk", [1, 3, 8, 26, 27, 1000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_chunks_change_nothing(chunk: int, dtype: torch.dtype) -> None:
    logits_NV, target_N = tensors(rows(257, seed=3, count=3), dtype)
    seq_N = torch.arange(27) // 5
    whole = signals_from_logits(logits_NV, target_N, seq_N, needs=NEEDS)
    parts = signals_from_logits(logits_NV, target_N, seq_N, needs=NEEDS, chunk=chunk)
    for name in ("nll", "entropy_bits", "p_max", "topk_entropy", "sum_p2", "mass_above"):
        a, b = getattr(whole, name), getattr(parts, name)
        assert torch.allclose(a, b, rtol=1e-14 if dtype is torch.float64 else 1e-6, atol=0), name
    assert torch.equal(whole.rank, parts.rank)
    assert torch.equal(whole.is_top, parts.is_top)
    assert torch.equal(parts.seq, seq_N)


def test_expected_rank_as_a_signal() -> None:
    logits_NV, target_N = tensors(rows(257, seed=7), torch.float32)
    signals = signals_from_logits(logits_NV.requires_grad_(), target_N, needs=["expected_rank"], chunk=2)
    assert signals.expected_rank is not None
    assert torch.equal(signals.expected_rank, expected_rank(logits_NV))
    assert not signals.expected_rank.requires_grad


def test_labels_of_32_bits() -> None:
    logits_NV, target_N = tensors(rows(37, seed=2))
    signals = signals_from_logits(logits_NV, target_N.int(), needs=NEEDS)
    assert_agrees(signals, judged(logits_NV, target_N), 1e-12)


def test_the_input_is_left_as_it_was() -> None:
    logits_NV, target_N = tensors(rows(257, seed=5, count=2))
    before = logits_NV.clone(), target_N.clone()
    signals_from_logits(logits_NV, target_N, needs=NEEDS, chunk=4)
    expected_rank(logits_NV)
    assert torch.equal(logits_NV, before[0])
    assert torch.equal(target_N, before[1])


def test_rows_that_are_not_contiguous() -> None:
    logits_NV, target_N = tensors(rows(64, seed=6))
    strided = torch.empty(64, len(target_N), dtype=torch.float64).t()
    strided.copy_(logits_NV)
    assert_agrees(signals_from_logits(strided, target_N, needs=NEEDS), judged(logits_NV, target_N), 1e-12)
    assert torch.allclose(expected_rank(strided), expected_rank(logits_NV), rtol=1e-12)


class LargestResult(TorchDispatchMode):
    """Remembers the largest tensor that any operation made, in elements."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for made in result if isinstance(result, tuple | list) else [result]:
            if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in inputs:
                self.elements = max(self.elements, made.numel())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_larger_than_a_chunk_is_made(dtype: torch.dtype) -> None:
    logits_NV, target_N = tensors(rows(500, seed=8, count=8), dtype)
    with torch.no_grad(), LargestResult() as seen:
        signals_from_logits(logits_NV, target_N, needs=ALL, chunk=4)
    assert seen.elements <= 4 * 500, f"a tensor of {seen.elements} elements; a chunk of 4 rows has {4 * 500}"


# ---------------------------------------------------------------- expected rank


def assert_expected_rank(logits_NV: torch.Tensor, tolerance: float = 1e-6) -> None:
    """E[R] - 1 to the tolerance, relative: the promise; nothing finer than a rounding of E[R] itself can be held."""
    got = expected_rank(logits_NV)
    assert got.shape == logits_NV.shape[:1]
    grain = torch.finfo(got.dtype).eps
    for i, row in enumerate(logits_NV.double().tolist()):
        want = oracle.expected_rank_minus_1(row)
        error = abs((got[i].item() - 1) - want)
        assert error <= tolerance * want + grain * (1 + want), f"row {i}: E[R]-1 = {got[i].item() - 1}, expected {want}"


@given(short_rows())
@hard(250)
def test_expected_rank_of_short_rows(row: Row) -> None:
    for dtype in (torch.float64, torch.float32):
        assert_expected_rank(tensors([row], dtype)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [2, 37, 1000, 5000])
def test_expected_rank_of_families(vocab: int, dtype: torch.dtype) -> None:
    assert_expected_rank(tensors(rows(vocab, seed=vocab + 1, count=2), dtype)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_expected_rank_at_the_vocabulary_of_a_real_model(dtype: torch.dtype) -> None:
    assert_expected_rank(tensors(rows(151_936, seed=13), dtype)[0])


def test_expected_rank_of_equal_logits_far_below_the_top() -> None:
    """One float32 subtraction rounds all of them the same way, by up to 2e-6: no average takes that away."""
    for top, tail in ((30.1234, -3.4567), (21.7, -12.9), (8.3, -9.71)):
        logits = torch.full((1, 5000), tail)
        logits[0, 77] = top
        assert_expected_rank(logits)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_expected_rank_by_torch_alone_as_on_other_devices(dtype: torch.dtype) -> None:
    for vocab in (2, 37, 1000):
        logits_NV, _ = tensors(rows(vocab, seed=vocab + 2, count=2), dtype)
        assert torch.allclose(_expected_rank_by_torch(logits_NV), expected_rank(logits_NV), rtol=1e-12, atol=0)


def test_expected_rank_of_no_row() -> None:
    assert expected_rank(torch.zeros(0, 5)).tolist() == []


def test_expected_rank_keeps_the_digits_of_a_nearly_certain_row() -> None:
    """At E[R] - 1 = 1e-5 a float32 answer would be right to one digit of it only."""
    logits = torch.zeros(1, 100)
    logits[0, 3] = 20
    want = oracle.expected_rank_minus_1(logits[0].tolist())
    assert want < 1e-4
    assert expected_rank(logits).item() - 1 == pytest.approx(want, rel=1e-6)


def test_expected_rank_where_most_tokens_tie() -> None:
    """Untrained rows of a padded vocabulary: thousands of equal logits beside a real distribution."""
    logits = tensors(rows(20_000, seed=17, families=("normal", "peaked", "heavy-tail")), torch.float32)[0]
    logits[:, 5_000:13_000] = -3.0
    logits[:, 13_000:15_000] = 0.25
    assert_expected_rank(logits)


# ---------------------------------------------------------------- bad input


def good() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(-1, 1, 15).reshape(3, 5).clone(), torch.tensor([0, 4, 2])


def spoil_label(value: int) -> Callable[[], Signals]:
    def call() -> Signals:
        logits_NV, target_N = good()
        target_N[1] = value
        return signals_from_logits(logits_NV, target_N)

    return call


def spoil_logit(value: float, label: bool = False) -> Callable[[], Signals]:
    def call() -> Signals:
        logits_NV, target_N = good()
        logits_NV[1, 4 if label else 0] = value
        return signals_from_logits(logits_NV, target_N)

    return call


def no_labels(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


BAD = {
    "label above": (spoil_label(5), InputError, ("label 5", "0 to 4")),
    "label below": (spoil_label(-1), InputError, ("label -1", "0 to 4")),
    "ignored label": (spoil_label(-100), InputError, ("-100", "align.supervised")),
    "empty": (
        lambda: signals_from_logits(torch.zeros(0, 5), no_labels(0)),
        InputError,
        ("empty", "token"),
    ),
    "no vocabulary": (
        lambda: signals_from_logits(torch.zeros(3, 0), no_labels(3)),
        InputError,
        ("0",),
    ),
    "fewer labels": (lambda: signals_from_logits(good()[0], torch.tensor([0, 1])), InputError, ("3", "2")),
    "labels of two axes": (
        lambda: signals_from_logits(good()[0], no_labels(3, 1)),
        InputError,
        ("3, 1",),
    ),
    "logits of three axes": (
        lambda: signals_from_logits(torch.zeros(2, 3, 5), torch.tensor([0, 1])),
        InputError,
        ("2, 3, 5", "[N"),
    ),
    "other seq": (lambda: signals_from_logits(*good(), torch.tensor([0, 1])), InputError, ("seq", "3", "2")),
    "NaN": (spoil_logit(math.nan), NonFiniteError, ("nan|NaN", "1")),
    "NaN at the label": (spoil_logit(math.nan, label=True), NonFiniteError, ("nan|NaN", "1")),
    "NaN in a later chunk": (
        lambda: signals_from_logits(good()[0] / torch.tensor([[1.0], [1], [0]]), good()[1], needs=ALL, chunk=1),
        NonFiniteError,
        ("row 2",),
    ),
    "plus infinity": (spoil_logit(math.inf), NonFiniteError, ("inf", "1")),
    "plus infinity at the label": (spoil_logit(math.inf, label=True), NonFiniteError, ("inf", "1")),
    "label masked out": (spoil_logit(-math.inf, label=True), RankTunerError, ("-inf", "4", "label")),
    "integer logits": (lambda: signals_from_logits(good()[0].long(), good()[1]), InputError, ("int64", "float")),
    "float labels": (lambda: signals_from_logits(good()[0], good()[1].float()), InputError, ("float32", "int")),
    "unknown need": (lambda: signals_from_logits(*good(), needs=["sum_p3"]), InputError, ("sum_p3", "sum_p2")),
    "one need as text": (lambda: signals_from_logits(*good(), needs="sum_p2"), InputError, ("['sum_p2']", "list")),
    "two top-k": (
        lambda: signals_from_logits(*good(), needs=["topk_entropy:3", "topk_entropy:4"]),
        InputError,
        ("3 and 4", "score twice"),
    ),
    "top-k of nothing": (lambda: signals_from_logits(*good(), needs=["topk_entropy:0"]), InputError, ("0", "k|top")),
    "top-k of a word": (
        lambda: signals_from_logits(*good(), needs=["topk_entropy:x"]),
        InputError,
        ("x", "topk_entropy"),
    ),
    "chunk of nothing": (lambda: signals_from_logits(*good(), chunk=0), InputError, ("chunk", "0")),
    "rank of integers": (lambda: expected_rank(good()[0].long()), InputError, ("int64", "float")),
    "rank of a vector": (lambda: expected_rank(good()[0][0]), InputError, ("5", "[N")),
    "rank in no vocabulary": (lambda: expected_rank(torch.zeros(3, 0)), InputError, ("(3, 0)", "[N, V]")),
    "rank of one plus infinity": (
        lambda: expected_rank(torch.tensor([[0.0, 1], [math.inf, 1]])),
        NonFiniteError,
        ("1",),
    ),
    "rank of NaN": (lambda: expected_rank(good()[0] * math.nan), NonFiniteError, ("nan|NaN",)),
    "rank of all masked": (lambda: expected_rank(torch.full((2, 5), -math.inf)), RankTunerError, ("-inf",)),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_named(case: str) -> None:
    call, kind, words = BAD[case]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert any(w in message for w in word.split("|")), f"{case}: nothing of {word!r} in: {message}"
    assert ":" in message or ";" in message, f"{case}: no next step in {message!r}"
