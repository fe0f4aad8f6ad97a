"""The judge is judged: by rows whose answers are known in closed form, and by 60 digits of mpmath."""

from __future__ import annotations

import math
import random

import oracle
import pytest
from mpmath import mp, mpf


def test_uniform_row_in_closed_form() -> None:
    t = oracle.token([3.0] * 8, label=5)
    assert (t.rank, t.is_top) == (8, True)
    assert t.nll == pytest.approx(math.log(8), abs=1e-15)
    assert t.entropy_bits == pytest.approx(3, abs=1e-15)
    assert t.p_max == pytest.approx(1 / 8, abs=1e-16)
    assert oracle.expected_rank_minus_1([3.0] * 8) == pytest.approx(7, abs=1e-14)
    assert oracle.rank_bound(3.0, t.p_max) == 3
    assert oracle.sum_p2([3.0] * 8) == pytest.approx(1 / 8, abs=1e-15)
    assert oracle.mass_above([3.0] * 8, 5) == 0


def test_three_tokens_by_hand() -> None:
    logits = [math.log(0.5), math.log(0.3), math.log(0.2), -math.inf]
    t = oracle.token(logits, label=2)
    assert (t.rank, t.is_top) == (3, False)
    assert math.exp(-t.nll) == pytest.approx(0.2, abs=1e-15)
    assert t.entropy_bits == pytest.approx(1.4854752972273344, abs=1e-14)
    assert oracle.expected_rank_minus_1(logits) == pytest.approx(0.3 * 1 + 0.2 * 2, abs=1e-15)
    assert oracle.mass_above(logits, 2) == pytest.approx(0.8, abs=1e-15)
    assert oracle.topk_entropy(logits, 2) == pytest.approx(
        -(0.625 * math.log(0.625) + 0.375 * math.log(0.375)), abs=1e-15
    )


def test_ties_share_the_last_place() -> None:
    assert oracle.token([1.0, 0.0, 0.0, -5.0], label=1).rank == 3
    p = [math.exp(z) / (math.e + 2 + math.exp(-5)) for z in (1.0, 0.0, 0.0, -5.0)]
    assert oracle.expected_rank_minus_1([1.0, 0.0, 0.0, -5.0]) == pytest.approx(
        2 * p[1] + 2 * p[2] + 3 * p[3], abs=1e-15
    )


@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0, 1e4])
def test_statistics_against_sixty_digits(spread: float) -> None:
    draw = random.Random(spread)
    logits = [draw.uniform(-spread, spread) for _ in range(60)]
    label = draw.randrange(60)
    with mp.workdps(60):
        weights = [mp.exp(mpf(z)) for z in logits]
        total = mp.fsum(weights)
        p = [w / total for w in weights]
        nll = -mp.log(p[label])
        bits = -mp.fsum(x * mp.log(x, 2) for x in p)
        above_1 = mp.fsum(x * (sum(y >= z for y in logits) - 1) for x, z in zip(p, logits, strict=True))
        t = oracle.token(logits, label)
        assert abs(t.nll - nll) <= 1e-14 * max(1, nll)
        assert abs(t.entropy_bits - bits) <= 1e-14 * max(1, bits)
        assert abs(oracle.expected_rank_minus_1(logits) - above_1) <= 1e-13 * above_1


def test_fano_inverse_gives_back_what_went_in() -> None:
    for q in (0.3, 0.5, 0.9, 0.999999):
        assert abs(oracle.fano_inverse(float(oracle.fano(mpf(q), 1000)), 1000) - q) < 1e-13


def test_tau_is_the_median_of_means() -> None:
    assert oracle.tau([1.0, 3.0, 5.0, 9.0], [0, 0, 1, 2]) == 5.0
    assert oracle.tau([1.0, 3.0, 5.0], [0, 0, 1]) == 3.5
