"""bounds.py against the oracle, and the paper's theorems over thousands of drawn distributions."""

from __future__ import annotations

import functools
import math
import random

import oracle
import pytest
import torch
from drawn import FAMILIES, close, hard, rows, short_rows, tensors
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from ranktuner import bounds
from ranktuner.errors import InputError
from ranktuner.signals import expected_rank, signals_from_logits

XI = ("max", "arithmetic", "geometric", "logarithmic")
F64 = 1e-12


def t64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ---------------------------------------------------------------- the formulas, one by one


@given(st.floats(0, 17.3), st.floats(1e-6, 1))
@example(2.0, 0.25)
@example(math.nextafter(2.0, 0.0), 0.25)
@example(0.0, 1.0)
@hard(300)
def test_rank_bound(entropy_bits: float, p_max: float) -> None:
    got = bounds.rank_bound(t64(entropy_bits), t64(p_max)).item()
    assert close(got, oracle.rank_bound(entropy_bits, p_max), F64)


@pytest.mark.parametrize("vocab", [2, 3, 37, 50_257, 152_064])
def test_fano_inverse(vocab: int) -> None:
    top = math.log2(vocab)
    entropies = [0.0, 1e-12, 1e-6, 0.01, 0.3, 0.999, min(1.0, top), min(1.7, top), min(1.999999, top), 0.9 * top, top]
    got = bounds.fano_inverse(t64(*entropies), vocab)
    for bits, q in zip(entropies, got.tolist(), strict=True):
        # h has slope 0 at q = 1/V: there one rounding of H moves q by 1e-8, and giving H back is all that can be asked
        gives_back = abs(oracle.fano(mpf(q), vocab) - bits) <= 4e-16 * max(1, bits)
        assert gives_back or abs(q - oracle.fano_inverse(bits, vocab)) <= 1e-9, f"H = {bits}, V = {vocab}: {q}"
    below = [h for h in entropies if h < 2]
    bound = bounds.rank_bound_from_entropy(t64(*below), vocab)
    for bits, s in zip(below, bound.tolist(), strict=True):
        assert abs(s - oracle.rank_bound_from_entropy(bits, vocab)) <= (1e-9 if bits < 0.99 * top else 2e-8)


def test_fano_inverse_of_float32_entropy_just_above_the_top_is_no_nan() -> None:
    bits = torch.tensor([math.log2(37) * (1 + 1e-6), -1e-7], dtype=torch.float32)
    q = bounds.fano_inverse(bits, 37)
    assert q[0].item() == pytest.approx(1 / 37, abs=1e-6)
    assert q[1].item() == pytest.approx(1.0, abs=1e-6)


def test_rank_bound_from_entropy_above_two_bits() -> None:
    got = bounds.rank_bound_from_entropy(t64(2.0, 6.0, 17.0), 152_064)
    assert got.tolist() == pytest.approx([2.0, 17.0, 2**15 + 1], rel=F64)


@pytest.mark.parametrize("kind", XI)
@given(rank=st.integers(1, 152_064), bound=st.floats(1, 152_064))
@example(rank=1, bound=1.0)
@example(rank=1, bound=1.0 + 1e-15)
@example(rank=1, bound=1.0 + 1e-9)
@example(rank=1, bound=1.0 + 1e-5)
@example(rank=1, bound=1.001)
@example(rank=1000, bound=1000.0000001)
@example(rank=1000, bound=999.9)
@hard(150)
def test_xi(kind: str, rank: int, bound: float) -> None:
    got = bounds.xi(torch.tensor([rank]), t64(bound), kind).item()
    assert abs(got / oracle.xi(rank, mpf(bound), kind) - 1) <= F64


def test_logarithmic_mean_of_nearly_equal_numbers_keeps_its_digits() -> None:
    apart = [sign * 10.0**-n * step for n in range(1, 13) for step in (1.1, 2.3, 4.7, 7.9) for sign in (1, -1)]
    bound = t64(*(300 * (1 + x) for x in apart))
    got = bounds.xi(torch.full((len(apart),), 300), bound, "logarithmic")
    for value, s in zip(got.tolist(), bound.tolist(), strict=True):
        assert abs(value / oracle.xi(300, mpf(s), "logarithmic") - 1) <= F64, f"s = {s!r}"


@pytest.mark.parametrize("kind", XI)
def test_xi_lies_between_rank_and_bound(kind: str) -> None:
    draw = random.Random(7)
    rank = [draw.randint(1, 3000) for _ in range(2000)]
    bound = [draw.choice([r, r * (1 + 1e-7), draw.uniform(1, 3000)]) for r in rank]
    got = bounds.xi(torch.tensor(rank), t64(*bound), kind)
    low, high = torch.minimum(t64(*rank), t64(*bound)), torch.maximum(t64(*rank), t64(*bound))
    assert (got >= low * (1 - 1e-15)).all()
    assert (got <= high * (1 + 1e-15)).all()


@pytest.mark.parametrize("kind", ["dynamic", "exact", 0.5, 0.0])
@given(x=st.floats(1, 152_064))
@hard(60)
def test_elasticity(kind: str | float, x: float) -> None:
    got = bounds.elasticity(t64(x), kind)
    assert got.shape == (1,)
    assert abs(got.item() - oracle.elasticity(mpf(x), kind)) <= F64


def test_elasticity_as_the_appendix_prints_it() -> None:
    exact = bounds.elasticity(t64(1, 2, 5, 10), "exact").tolist()
    assert [float(f"{k:.3f}") for k in exact] == [0.5, 0.265, 0.125, 0.076]
    assert bounds.elasticity(t64(1), "dynamic").item() == 1.0


@pytest.mark.parametrize("drop", ["none", "probability", "entropy"])
@given(nll=st.floats(0, 2e4), bound=st.floats(1, 40_000), k=st.floats(0, 1))
@hard(100)
def test_log_scale(drop: str, nll: float, bound: float, k: float) -> None:
    got = bounds.log_scale(t64(nll), t64(bound), t64(k), drop).item()
    assert close(got, oracle.log_scale(nll, mpf(bound), mpf(k), drop), F64)


@pytest.mark.parametrize("f", list(oracle.F))
@pytest.mark.parametrize("g", list(oracle.LOG_G))
def test_indicator(f: str, g: str) -> None:
    draw = random.Random(3)
    ranks = [draw.choice([1, 2, 15, 300, 152_064]) for _ in range(60)]
    expected = [draw.choice([1.0, 1 + 1e-9, 2.5, 17.0, draw.uniform(1, 60_000)]) for _ in ranks]
    got = bounds.indicator(torch.tensor(ranks), t64(*expected), f, g).tolist()
    for value, r, e in zip(got, ranks, expected, strict=True):
        want = mp.exp(oracle.log_indicator(r, mpf(e), f, g))
        assert abs(value / want - 1) <= F64, f"R = {r}, E[R] = {e}"


@pytest.mark.parametrize("f", list(oracle.F))
@pytest.mark.parametrize("g", list(oracle.LOG_G))
def test_surrogate_indicator(f: str, g: str) -> None:
    nll = [0.0, 1e-15, 1e-6, 0.1, 0.7, 1.0, 3.0, 11.0, 19.9, 20.5, 25.0, 36.0, 37.0, 105.0, 709.0, 746.0, 1e4]
    for bound in (1.0, 1 + 1e-9, 1.5, 17.0, 40_000.0):
        got = bounds.surrogate_indicator(t64(*nll), t64(bound).expand(len(nll)), f, g).tolist()
        for value, n in zip(got, nll, strict=True):
            want = mp.exp(oracle.log_surrogate(n, mpf(bound), f, g))
            assert math.isfinite(value)
            # exp of a logarithm of size L keeps about L rounding errors
            tolerance = F64 * max(1, abs(mp.log(want)))
            assert abs(value - want) <= tolerance * want + 1e-300, f"nll = {n}, s = {bound}: {value}, expected {want}"


@pytest.mark.parametrize("f", list(oracle.F))
@pytest.mark.parametrize("g", list(oracle.LOG_G))
def test_surrogate_indicator_is_finite_in_float32(f: str, g: str) -> None:
    nll = torch.tensor([0.0, 1e-8, 20.0, 88.0, 89.0, 104.0, 1e4], dtype=torch.float32)
    for bound in (1.0, 17.0, 40_000.0):
        got = bounds.surrogate_indicator(nll, torch.full_like(nll, bound), f, g)
        assert got.dtype == torch.float32
        for value, n in zip(got.tolist(), nll.tolist(), strict=True):
            want = mp.exp(oracle.log_surrogate(n, mpf(bound), f, g))
            tolerance = 2e-6 * max(1, abs(mp.log(want)))
            assert abs(value - want) <= tolerance * want + 1e-37, f"nll = {n}, s = {bound}: {value}, expected {want}"


# ---------------------------------------------------------------- the neutral point and the slopes


@pytest.mark.parametrize("bound", [1.0, 1.25, 2.0, 17.0, 4096.0])
def test_neutral_point(bound: float) -> None:
    nll = t64(math.log(bound))  # p s = 1
    for kind in XI:
        for k in ("dynamic", "exact", 0.5):
            elasticity = bounds.elasticity(bounds.xi(t64(3), t64(bound), kind), k)
            assert abs(bounds.log_scale(nll, t64(bound), elasticity).exp().item() - 1) <= 1e-15
    for f in oracle.F:
        for g in oracle.LOG_G:
            assert abs(bounds.indicator(t64(bound), t64(bound), f, g).item() - 1) <= 1e-15
            assert abs(bounds.surrogate_indicator(nll, t64(bound), f, g).item() - 1) <= 1e-13


def test_scale_falls_in_probability_and_in_the_bound() -> None:
    k = t64(0.3).expand(500)
    p = torch.linspace(0.001, 1, 500, dtype=torch.float64)
    assert (bounds.log_scale(-p.log(), t64(5.0).expand(500), k).diff() < 0).all()
    s = torch.linspace(1, 5000, 500, dtype=torch.float64)
    assert (bounds.log_scale(t64(2.0).expand(500), s, k).diff() < 0).all()


@pytest.mark.parametrize("f", list(oracle.F))
@pytest.mark.parametrize("g", list(oracle.LOG_G))
def test_indicator_falls_in_rank_and_rises_in_expected_rank(f: str, g: str) -> None:
    ranks = torch.arange(1, 400)
    assert (bounds.indicator(ranks, t64(20.0).expand(399), f, g).diff() < 0).all()
    expected = torch.linspace(1, 400, 399, dtype=torch.float64)
    assert (bounds.indicator(torch.full((399,), 20), expected, f, g).diff() > 0).all()


# ---------------------------------------------------------------- the theorems


@functools.cache
def population() -> dict[str, torch.Tensor]:
    """4,860 distributions of nine families over vocabularies of 2 to 500, with all that is said of each."""
    columns: dict[str, list[torch.Tensor]] = {}
    for vocab in (2, 3, 5, 12, 37, 120, 500):
        logits_NV, target_N = tensors(rows(vocab, seed=vocab, count=80 if vocab > 3 else 70))
        signals = signals_from_logits(logits_NV, target_N)
        expected = expected_rank(logits_NV).double()
        entropy_only = bounds.rank_bound_from_entropy(signals.entropy_bits, vocab)
        found = {
            "nll": signals.nll,
            "p": signals.p,
            "rank": signals.rank.double(),
            "expected": expected,
            "entropy": signals.entropy_bits,
            "s": bounds.rank_bound(signals.entropy_bits, signals.p_max),
            "s_entropy": entropy_only,
        }
        for name, column in found.items():
            columns.setdefault(name, []).append(column)
    return {name: torch.cat(parts) for name, parts in columns.items()}


ROUNDING = 1e-12
"""Relative: sums over 500 float64 terms are right to about 1e-14; the theorems are tight in uniform rows."""


def test_rank_is_at_most_the_inverse_probability() -> None:
    at = population()
    assert len(at["p"]) >= 4_000
    assert (at["rank"] * at["p"] <= 1 + ROUNDING).all()
    assert (at["rank"] * at["p"] > 1 - ROUNDING).sum() >= 100, "tight somewhere, or the test proves little"


def test_expected_rank_is_at_least_the_bound() -> None:
    at = population()
    assert (at["s"] <= at["expected"] * (1 + ROUNDING)).all()
    low = at["entropy"] < 2
    assert low.sum() >= 1000
    assert (at["s_entropy"] <= at["expected"] * (1 + 2e-9)).all()  # the inverse is solved to 1e-9
    assert (at["s_entropy"] <= at["s"] + 2e-9)[low].all(), "the entropy alone knows less than p_max"


def test_tightness_gaps_lie_in_zero_one() -> None:
    at = population()
    for gap in (1 / at["rank"] - at["p"], 1 / at["s"] - 1 / at["expected"]):
        assert (gap >= -ROUNDING).all()
        assert (gap < 1).all()


@pytest.mark.parametrize("f", list(oracle.F))
@pytest.mark.parametrize("g", list(oracle.LOG_G))
def test_surrogate_indicator_is_at_most_the_exact_one(f: str, g: str) -> None:
    at = population()
    exact = bounds.indicator(at["rank"], at["expected"], f, g)
    surrogate = bounds.surrogate_indicator(at["nll"], at["s"], f, g)
    assert (surrogate <= exact * (1 + ROUNDING)).all()


def test_indicator_is_a_power_of_the_relative_rank() -> None:
    """I = (E[R]/R)^K with the exact K at a point between R and E[R]; K falls, so it lies between its end values."""
    at = population()
    ratio = (at["expected"] / at["rank"]).log2()
    clear = ratio.abs() > 1e-3  # the implied K is a quotient of two small numbers near E[R] = R
    assert clear.sum() >= 3000
    implied = bounds.indicator(at["rank"], at["expected"]).log2()[clear] / ratio[clear]
    low, high = (pick(at["rank"], at["expected"])[clear] for pick in (torch.minimum, torch.maximum))
    assert (implied <= bounds.elasticity(low, "exact") + 1e-10).all()
    assert (implied >= bounds.elasticity(high, "exact") - 1e-10).all()


@given(short_rows())
@hard(400)
def test_theorems_hold_for_whatever_hypothesis_draws(row: tuple[list[float], int]) -> None:
    logits_NV, target_N = tensors([row])
    signals = signals_from_logits(logits_NV, target_N)
    expected = expected_rank(logits_NV).double()
    s = bounds.rank_bound(signals.entropy_bits, signals.p_max)
    assert (signals.rank * signals.p <= 1 + ROUNDING).all()
    assert (s <= expected * (1 + ROUNDING)).all()
    assert (bounds.rank_bound_from_entropy(signals.entropy_bits, len(row[0])) <= expected * (1 + 2e-9)).all()
    exact = bounds.indicator(signals.rank, expected)
    assert (bounds.surrogate_indicator(signals.nll, s) <= exact * (1 + ROUNDING)).all()


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bounds.xi(t64(1), t64(1), "harmonic"), ("harmonic", "arithmetic")),
        (lambda: bounds.xi(t64(1), t64(1), "logarithmc"), ("logarithmc", "logarithmic")),
        (lambda: bounds.elasticity(t64(1), "dynamc"), ("dynamc", "dynamic")),
        (lambda: bounds.log_scale(t64(1), t64(1), t64(1), "entrpy"), ("entrpy", "entropy")),
        (lambda: bounds.indicator(t64(1), t64(1), f="inv-lg"), ("inv-lg", "inv-log")),
        (lambda: bounds.indicator(t64(1), t64(1), g="exp3"), ("exp3", "exp2")),
        (lambda: bounds.surrogate_indicator(t64(1), t64(1), f="log"), ("log", "inv-log")),
        (lambda: bounds.fano_inverse(t64(1), 1), ("1", "2")),
    ],
)
def test_unknown_kinds_answer_with_the_near_ones(call: object, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert all(word in str(caught.value) for word in words), caught.value


def test_families_are_all_here() -> None:
    assert len(population()["p"]) == len(FAMILIES) * (5 * 80 + 2 * 70)
