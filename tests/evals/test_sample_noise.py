"""Draws against the distribution they claim, and against everything they must not depend on."""

from __future__ import annotations

import math

import pytest
import torch

from ranktuner.evals.generators.noise import draw, gumbel

MANY = 4_000


def frequencies(logits_V: torch.Tensor, temperature: float = 1.0, top_p: float = 1.0) -> torch.Tensor:
    seeds = torch.arange(MANY) * 7 + 3
    tokens = draw(logits_V.expand(MANY, -1), seeds, torch.full((MANY,), 5), temperature, top_p)
    return torch.bincount(tokens, minlength=len(logits_V)).double()


def assert_drawn_from(counts_V: torch.Tensor, p_V: torch.Tensor) -> None:
    """Pearson's test with tokens of small expectation pooled; the bound is about five standard deviations out."""
    assert counts_V[p_V == 0].sum() == 0
    expected_V = p_V.double() * MANY
    small = expected_V < 10
    counts = torch.cat([counts_V[~small], counts_V[small].sum()[None]])
    expected = torch.cat([expected_V[~small], expected_V[small].sum()[None]])
    kept = expected > 0
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    degrees = int(kept.sum()) - 1
    assert statistic < degrees + 5 * (2 * degrees) ** 0.5 + 10, (float(statistic), degrees)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("vocabulary", [2, 64, 65, 300])
def test_draws_follow_the_softmax(vocabulary: int, spread: float) -> None:
    """300 tokens at spread 0.1: most draws fall outside the head, and are drawn among the others."""
    logits_V = torch.randn(vocabulary, generator=torch.Generator().manual_seed(0)) * spread
    assert_drawn_from(frequencies(logits_V), logits_V.double().softmax(-1))


def test_temperature_divides_the_logits() -> None:
    logits_V = torch.randn(200, generator=torch.Generator().manual_seed(1)) * 2
    assert_drawn_from(frequencies(logits_V, temperature=0.6), (logits_V.double() / 0.6).softmax(-1))
    assert draw(logits_V[None], torch.tensor([1]), torch.tensor([0]), 0.0).item() == logits_V.argmax()


@pytest.mark.parametrize(("top_p", "spread"), [(0.5, 3.0), (0.9, 0.3), (0.99, 1.0), (1e-6, 1.0)])
def test_nucleus_is_the_smallest_set_with_the_share(top_p: float, spread: float) -> None:
    """1,200 nearly equal tokens: the nucleus reaches beyond the first head, and beyond the second."""
    logits_V = torch.randn(1200, generator=torch.Generator().manual_seed(2)) * spread
    p_V = logits_V.double().softmax(-1)
    order = p_V.argsort(descending=True)
    size = int((p_V[order].cumsum(0) < top_p).sum()) + 1
    nucleus_V = torch.zeros_like(p_V)
    nucleus_V[order[:size]] = p_V[order[:size]]
    counts_V = frequencies(logits_V, top_p=top_p)
    border = order[max(size - 2, 0) : size + 2]  # rounding of the running sum may move the border by a token
    nucleus_V[border] = torch.where(counts_V[border] > 0, p_V[border], 0.0)
    assert_drawn_from(counts_V, nucleus_V / nucleus_V.sum())


def test_a_draw_knows_its_seed_and_step_only() -> None:
    logits_BV = torch.randn(50, 400, generator=torch.Generator().manual_seed(3))
    seeds, steps = torch.randint(2**31, (50,)), torch.randint(4096, (50,))
    together = draw(logits_BV, seeds, steps, 1.0)
    alone = torch.cat([draw(logits_BV[i : i + 1], seeds[i : i + 1], steps[i : i + 1], 1.0) for i in range(50)])
    backwards = draw(logits_BV.flip(0), seeds.flip(0), steps.flip(0), 1.0).flip(0)
    assert together.equal(alone)
    assert together.equal(backwards)
    assert not together.equal(draw(logits_BV, seeds + 1, steps, 1.0))
    assert not together.equal(draw(logits_BV, seeds, steps + 1, 1.0))


def test_noise_is_gumbel_and_independent_of_neighbouring_counters() -> None:
    noise = gumbel(torch.arange(200), torch.zeros(200, dtype=torch.long), torch.arange(500).expand(200, -1)).double()
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.57722, abs=0.02)  # Euler's constant
    assert noise.std().item() == pytest.approx(1.28255, abs=0.02)  # pi / sqrt(6)
    for other in (
        gumbel(torch.arange(200) + 1, torch.zeros(200, dtype=torch.long), torch.arange(500).expand(200, -1)),
        gumbel(torch.arange(200), torch.ones(200, dtype=torch.long), torch.arange(500).expand(200, -1)),
        gumbel(torch.arange(200), torch.zeros(200, dtype=torch.long), torch.arange(500).expand(200, -1) + 1),
        gumbel(torch.arange(200), torch.zeros(200, dtype=torch.long), torch.arange(500).expand(200, -1), stream=1),
    ):
        correlation = torch.corrcoef(torch.stack([noise.flatten(), other.double().flatten()]))[0, 1]
        assert abs(correlation) < 0.015  # 100,000 pairs: five standard errors


def splitmix(z: int) -> int:
    """The published finaliser, in integers without limit."""
    mask = 2**64 - 1
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_noise_equals_the_published_hash_in_plain_integers() -> None:
    """Changing the noise would change every sample that a recorded seed stands for."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    for seed, step, token, stream in [(12345, 7, 0, 0), (2**31 - 1, 0, 49151, 1), (0, 4095, 262143, 0)]:
        key = splitmix((splitmix((seed * golden + stream) & mask) + (step + 1) * golden) & mask)
        u = ((splitmix((key + (token + 1) * golden) & mask) >> 32) + 0.5) / 2**32
        found = gumbel(torch.tensor([seed]), torch.tensor([step]), torch.tensor([[token]]), stream)
        assert found.item() == pytest.approx(-math.log(-math.log1p(-u)), rel=1e-4, abs=1e-5)
