"""`grad_budget=d`: at most the share d of the logit gradient's L1 mass is left out, counted here from dense logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from written_out import Problem, dense_signals, error, fused, judged, problem, rounded_logits, sums_of

from ranktuner.errors import UnsupportedError
from ranktuner.kernels import FusedSums
from ranktuner.kernels.budget import compact, rows_that_count
from ranktuner.registry import method
from ranktuner.signals import RowTerms, Signals

BUDGETS = [0.001, 0.01, 0.05, 0.3, 0.9]
METHODS = ["sft", "dft", "ranktuner", "ranktuner(prior=prob)", "chord", "overtone"]


def real(n: int = 300, dtype: torch.dtype = torch.float64) -> Problem:
    """Tokens as a language model sees them: most labels nearly certain, some far off."""
    p = problem(97, 24, n, dtype, seed=5)
    z = rounded_logits(p)
    certain = torch.arange(n) % 3 > 0
    p.target[certain] = z.argmax(dim=1)[certain]
    return p


def logit_gradient(p: Problem, spec: str) -> Tensor:
    """[N, V]: of the weighted loss, by autograd from dense logits."""
    low = rounded_logits(p)
    z = low.double().requires_grad_()
    signals, nll, _ = dense_signals(z, low, p, spec)
    (method(spec).terms(signals).w_nll * p.row_weight.double() * nll).sum().backward()
    assert z.grad is not None
    return z.grad


def budgeted(p: Problem, spec: str, budget: float, chunk: int | None = 64) -> tuple[FusedSums, list[Tensor]]:
    p = p.fresh()
    chosen = method(spec)
    out = sums_of(p, chosen.terms, chunk=chunk, needs=chosen.needs, grad_budget=budget, implementation="plain")
    return out, list(torch.autograd.grad(out.total, p.leaves))


@pytest.mark.parametrize("spec", METHODS)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("chunk", [7, 64, None])
def test_the_share_left_out_is_known_and_within_the_budget(spec: str, budget: float, chunk: int | None) -> None:
    p = real()
    out, (d_hidden, _) = budgeted(p, spec, budget, chunk)
    l1 = logit_gradient(p, spec).abs().sum(dim=1)
    gone = d_hidden.abs().sum(dim=1) == 0
    share = float(l1[gone].sum() / l1.sum())
    assert share <= budget
    assert float(out.left_out) == pytest.approx(share, rel=1e-9, abs=1e-15)
    if chunk is None:
        smallest = float(l1[~gone].min() / l1.sum())
        assert share + smallest > budget, "one more row would still have been within the budget"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_budget_holds_in_every_dtype(dtype: torch.dtype) -> None:
    p = real(dtype=dtype)
    for budget in BUDGETS:
        out, (d_hidden, _) = budgeted(p, "ranktuner(prior=prob)", budget)
        l1 = logit_gradient(p, "ranktuner(prior=prob)").abs().sum(dim=1)
        gone = d_hidden.abs().sum(dim=1) == 0
        assert float(l1[gone].sum() / l1.sum()) <= budget * (1 + 1e-5)
        assert float(out.left_out) == pytest.approx(float(l1[gone].sum() / l1.sum()), rel=1e-4)


def test_rows_are_saved_and_those_that_stay_are_exact() -> None:
    p = real()
    _, exact = budgeted(p, "ranktuner(prior=prob)", 0.0)
    out, (d_hidden, d_weight) = budgeted(p, "ranktuner(prior=prob)", 0.02)
    stays = d_hidden.abs().sum(dim=1) > 0
    assert 0.3 < float(stays.double().mean()) < 0.9, "a budget that saves nothing proves nothing"
    assert error(d_hidden[stays], exact[0][stays]) < 1e-13
    kept = logit_gradient(p, "ranktuner(prior=prob)") * stays[:, None]
    assert error(d_weight, kept.T @ p.hidden) < 1e-12, "the head's gradient is that of the rows that stay"
    assert 0 < float(out.left_out) <= 0.02


def test_loss_and_signals_do_not_depend_on_it() -> None:
    p = real()
    whole, part = budgeted(p, "dft", 0.0)[0], budgeted(p, "dft", 0.3)[0]
    assert torch.equal(whole.total, part.total)
    assert torch.equal(whole.signals.nll, part.signals.nll)
    assert torch.equal(whole.terms.w_nll, part.terms.w_nll)


def test_without_a_budget_nothing_is_left_out() -> None:
    out, gradients = budgeted(real(), "ranktuner", 0.0)
    assert out.left_out == 0
    want = judged(real(), "ranktuner").gradients
    for g, w in zip(gradients, want, strict=True):
        assert error(g / 100, w) < 1e-12


def test_the_error_of_the_gradients_is_what_it_is() -> None:
    """Not promised, only bounded from above here, so that a change that makes it much worse is seen."""
    p = real(600)
    exact, part = fused(p, "sft", 200), fused(p, "sft", 200, grad_budget=0.01)
    for g, w in zip(part.gradients, exact.gradients, strict=True):
        assert 0 < error(g, w) < 0.03
        assert float(torch.nn.functional.cosine_similarity(g.flatten(), w.flatten(), dim=0)) > 0.9995


def test_entropy_terms_are_refused() -> None:
    p = real().fresh()
    chosen = method("entropy-reg")
    message = "grad_budget bounds the mass of nll gradients and cannot speak for an entropy term; use grad_budget=0"
    with pytest.raises(UnsupportedError, match=message):
        sums_of(p, chosen.terms, needs=chosen.needs, grad_budget=0.1)

    def undeclared(signals: Signals) -> RowTerms:
        return RowTerms(torch.ones_like(signals.nll), torch.ones_like(signals.nll))

    with pytest.raises(UnsupportedError, match=message):
        sums_of(p, undeclared, grad_budget=0.1)


def test_nothing_to_learn_leaves_everything_out() -> None:
    p = real(20)
    p.row_weight.zero_()
    for budget in (0.0, 0.1):
        out, gradients = budgeted(p, "sft", budget)
        assert out.left_out == 0
        assert all(torch.count_nonzero(g) == 0 for g in gradients)


# ---------------------------------------------------------------- the two small functions


def test_rows_that_count_takes_the_smallest_first() -> None:
    w = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0])
    nll = -torch.log1p(-torch.tensor([0.1, 0.1, 0.9, 0.1, 0.4], dtype=torch.float64))  # masses .1 .05 0 .2 .4
    for budget, want in [(0.0, [0, 1, 3, 4]), (0.06, [0, 1, 3, 4]), (0.07, [0, 3, 4]), (0.21, [3, 4]), (0.5, [4])]:
        kept, mass = rows_that_count(nll, w, budget)
        assert kept.tolist() == want, budget
        assert mass[1].item() == pytest.approx(0.75)
        assert mass[0].item() == pytest.approx(0.75 - sum([0.1, 0.05, 0, 0.2, 0.4][i] for i in want))


def test_a_row_that_is_not_finite_is_never_left_out() -> None:
    nll = torch.tensor([1.0, torch.nan, 0.0])
    kept, _ = rows_that_count(nll, torch.ones(3), 0.5)
    assert 1 in kept.tolist()


@pytest.mark.parametrize("kept", [[0], [9], [3, 9], [0, 1, 2], [7, 8, 9], list(range(10)), [0, 2, 4, 6, 8]])
def test_compact_brings_the_kept_rows_to_the_front(kept: list[int]) -> None:
    logits = torch.arange(10.0)[:, None].expand(10, 4).clone()
    index = compact(logits, torch.tensor(kept))
    assert sorted(index.tolist()) == kept
    assert logits[: len(kept), 0].tolist() == index.tolist()
