"""pass@k against enumeration of every choice, in fractions: equal, not close."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from ranktuner.errors import InputError
from ranktuner.evals.passk import paired_difference, pass_at_k, pooled_fraction, pooled_pass_at_k, subsets, uncertainty


def enumerated(n: int, c: int, k: int) -> tuple[int, int]:
    """Choices of k among n samples of which the first c are correct: (with a correct one, all), by listing them."""
    chosen = list(combinations(range(n), k))
    return sum(min(choice) < c for choice in chosen), len(chosen)


@pytest.mark.parametrize("n", range(1, 13))
def test_equals_enumeration_for_every_c_and_k(n: int) -> None:
    for c, k in product(range(n + 1), range(1, n + 1)):
        assert subsets(n, c, k) == enumerated(n, c, k)
        assert pass_at_k(n, c, k) == float(Fraction(*enumerated(n, c, k)))


@pytest.mark.parametrize(("c", "k"), [(0, 4), (1, 1), (1, 8), (2, 4), (3, 16), (5, 2), (8, 8), (15, 2), (16, 1)])
def test_equals_enumeration_at_sixteen(c: int, k: int) -> None:
    assert subsets(16, c, k) == enumerated(16, c, k)


def test_pooled_equals_enumeration_over_problems_of_different_n() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        counts = [(n := int(rng.integers(4, 13)), int(rng.integers(0, n + 1))) for _ in range(int(rng.integers(1, 6)))]
        for k in range(1, 5):
            listed = [enumerated(n, c, k) for n, c in counts]
            expected = Fraction(sum(hit for hit, _ in listed), sum(every for _, every in listed))
            assert pooled_fraction(counts, k) == expected
            assert pooled_pass_at_k(counts, k) == float(expected)


def test_pooled_is_the_mean_only_when_all_have_the_same_n() -> None:
    same, different = [(8, 1), (8, 5), (8, 0)], [(8, 1), (4, 4)]
    for k in (1, 2, 4):
        mean = sum(Fraction(*subsets(n, c, k)) for n, c in same) / len(same)
        assert pooled_fraction(same, k) == mean
        assert pooled_fraction(different, k) != sum(Fraction(*subsets(n, c, k)) for n, c in different) / 2


def test_they_are_public_names() -> None:
    import ranktuner as rt

    assert rt.pass_at_k is pass_at_k
    assert rt.pooled_pass_at_k is pooled_pass_at_k


def test_large_counts_stay_exact() -> None:
    assert pass_at_k(3000, 1, 1500) == 0.5
    u = uncertainty([(3000, 1), (3000, 1), (3000, 0)], 1500)
    assert u.standard_error == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pass_at_k(4, 1, 8), "has 4 finished samples, so pass@8 cannot be measured"),
        (lambda: pooled_pass_at_k([(8, 1), (2, 1)], 4, ["a", "p7"]), "problem 'p7' has 2 finished samples"),
        (lambda: pooled_pass_at_k([(8, 1), (2, 1)], 4), "problem '1' has 2"),
        (lambda: pass_at_k(4, 5, 1), "5 correct of 4 samples"),
        (lambda: pass_at_k(4, -1, 1), "-1 correct of 4"),
        (lambda: pass_at_k(4, 1, 0), "k = 0"),
        (lambda: pooled_pass_at_k([], 1), "over no problems"),
    ],
)
def test_impossible_counts_are_refused_by_name(call, words: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)


def test_standard_error_is_the_textbook_one_for_equal_n() -> None:
    counts = [(8, c) for c in (0, 0, 1, 3, 8, 8, 2)]
    rates = np.array([c / 8 for _, c in counts])
    assert uncertainty(counts, 1).standard_error == pytest.approx(rates.std(ddof=1) / np.sqrt(len(rates)), rel=1e-12)
    assert uncertainty([(8, 3)], 1).standard_error is None


def test_interval_covers_the_truth_at_about_its_level() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(150):
        chance = rng.beta(1, 2, size=60)  # problems differ in difficulty: mean 1/3
        u = uncertainty([(4, int(c)) for c in rng.binomial(4, chance)], 1, seed=trial)
        covered += u.low <= 1 / 3 <= u.high
    assert 0.88 < covered / 150 < 0.99


def test_interval_is_the_same_for_the_same_seed_and_has_no_width_without_spread() -> None:
    counts = [(6, c % 7) for c in range(40)]
    assert uncertainty(counts, 2, seed=3) == uncertainty(counts, 2, seed=3)
    assert uncertainty(counts, 2, seed=3) != uncertainty(counts, 2, seed=4)
    flat = uncertainty([(4, 2)] * 5, 2)
    assert (flat.standard_error, flat.low, flat.high) == pytest.approx((0, 5 / 6, 5 / 6), abs=1e-12)


def test_a_paired_difference_of_two_problems_by_hand() -> None:
    """Shares (1, 1/2) less (1/2, 0): both problems differ by a half, so nothing is left of the error."""
    d = paired_difference([(4, 4), (4, 2)], [(4, 2), (4, 0)], 1)
    assert (d.value, d.low, d.high) == (0.5, 0.5, 0.5)
    assert d.standard_error == pytest.approx(0, abs=1e-15)
    # (1, 0) less (0, 0): differences 1 and 0, so s / sqrt(M) = sqrt(1/2) / sqrt(2) = 1/2; a resample gives 0, 1/2 or 1.
    d = paired_difference([(2, 2), (2, 0)], [(2, 0), (2, 0)], 1)
    assert (d.value, d.low, d.high, d.standard_error) == (0.5, 0.0, 1.0, 0.5)


def test_paired_intervals_equal_the_resampling_of_the_differences() -> None:
    """With one n for all, the pooled difference is a mean of differences; its interval by a separate computation."""
    rng = np.random.default_rng(3)
    counts = [(6, int(rng.integers(0, 7))) for _ in range(40)]
    others = [(6, int(rng.integers(0, 7))) for _ in range(40)]
    got = paired_difference(counts, others, 2, seed=5)
    each = np.array([pass_at_k(6, a, 2) - pass_at_k(6, b, 2) for (_, a), (_, b) in zip(counts, others, strict=True)])
    assert got.value == pytest.approx(each.mean())
    assert got.standard_error == pytest.approx(each.std(ddof=1) / np.sqrt(40))
    drawn = each[np.random.default_rng(5).integers(40, size=(2000, 40))].mean(1)
    assert (got.low, got.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
    assert got == paired_difference(counts, others, 2, seed=5)


def test_pairing_narrows_the_interval_where_problems_are_hard_for_both() -> None:
    rng = np.random.default_rng(0)
    hard = rng.uniform(size=80)
    counts = [(8, int(rng.binomial(8, p))) for p in hard]
    others = [(8, int(rng.binomial(8, p))) for p in hard]
    paired = paired_difference(counts, others, 1)
    a, b = uncertainty(counts, 1), uncertainty(others, 1)
    assert paired.standard_error is not None
    assert a.standard_error is not None
    assert b.standard_error is not None
    assert paired.standard_error < 0.6 * np.hypot(a.standard_error, b.standard_error)
    shuffled = paired_difference(counts, [others[i] for i in rng.permutation(80)], 1)
    assert paired.high - paired.low < 0.7 * (shuffled.high - shuffled.low)


def test_unequal_samples_of_a_paired_difference_weigh_as_in_the_pooled_form() -> None:
    counts, others = [(8, 1), (4, 4)], [(4, 0), (8, 8)]
    got = paired_difference(counts, others, 2)
    assert got.value == float(pooled_fraction(counts, 2) - pooled_fraction(others, 2))
    with pytest.raises(InputError, match="over 2 and 1 problems: expected the same on each side"):
        paired_difference(counts, others[:1], 2)
