"""What the kernels refuse: every message names the value found, what was expected and the next step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from written_out import problem, signals_of, sums_of

from ranktuner.errors import InputError, NonFiniteError
from ranktuner.kernels import Head, fused_sums, signals_from_hidden
from ranktuner.registry import method

SFT = method("sft").terms


def test_refusals_name_value_expectation_and_next_step() -> None:
    p = problem()
    cases: list[tuple[str, Callable[[], object]]] = [
        (r"hidden states of shape \(41, 8\) do not fit a head of shape \(37, 9\): \[N, 9\] was expected",
         lambda: fused_sums(p.hidden, Head(p.weight.new_zeros(37, 9)), p.target, SFT)),
        (r"hidden states of shape \(41, 8\) do not fit a head of shape \(37, 9\)",
         lambda: signals_from_hidden(p.hidden, p.weight.new_zeros(37, 9), p.target)),
        (r"hidden states of shape \(2, 41, 8\) do not fit",
         lambda: fused_sums(p.hidden.expand(2, 41, 8), p.head, p.target, SFT)),
        (r"the head's weight has shape \(37,\); \[vocabulary, hidden\] was expected",
         lambda: fused_sums(p.hidden, Head(p.weight[:, 0]), p.target, SFT)),
        (r"the head's bias has shape \(36,\); \(37,\) was expected",
         lambda: fused_sums(p.hidden, Head(p.weight, p.weight[:36, 0]), p.target, SFT)),
        (r"softcap is 0; a finite number above 0, or None, was expected",
         lambda: fused_sums(p.hidden, Head(p.weight, softcap=0), p.target, SFT)),
        (r"softcap is nan", lambda: fused_sums(p.hidden, Head(p.weight, softcap=float("nan")), p.target, SFT)),
        (r"logit scale is 0; a finite number other than 0",
         lambda: fused_sums(p.hidden, Head(p.weight, scale=0), p.target, SFT)),
        (r"logit scale is inf", lambda: signals_from_hidden(p.hidden, p.weight, p.target, logit_scale=float("inf"))),
        (r"chunk is 0; a number of rows of at least 1", lambda: signals_of(p, chunk=0)),
        (r"grad_budget is 1; a share from 0 \(exact\) to below 1", lambda: sums_of(p, SFT, grad_budget=1)),
        (r"grad_budget is -0.1", lambda: sums_of(p, SFT, grad_budget=-0.1)),
        (r"label 37 is outside the vocabulary of 37", lambda: sums_of(replace(p, target=p.target.clamp_min(37)), SFT)),
        (r"label -100 is outside the vocabulary", lambda: signals_of(replace(p, target=p.target.clamp_max(-100)))),
        (r"hidden states of shape \(41, 8\) and labels of shape \(40,\) do not fit",
         lambda: fused_sums(p.hidden, p.head, p.target[:40], SFT)),
        (r"hidden states of shape \(41, 8\) and labels of shape \(0,\) do not fit",
         lambda: fused_sums(p.hidden, p.head, p.target[:0], SFT)),
        (r"seq has shape \(3,\)", lambda: fused_sums(p.hidden, p.head, p.target, SFT, seq_N=p.seq[:3])),
        (r"weight has shape \(41, 1\); \(41,\) was expected, one for each token",
         lambda: fused_sums(p.hidden, p.head, p.target, SFT, weight_N=p.row_weight[:, None])),
        (r"hidden states are torch.float32, the head torch.float64: cast one of them, or run under autocast",
         lambda: fused_sums(p.hidden.float(), p.head, p.target, SFT)),
        (r"unknown need 'sum_p3'; did you mean 'sum_p2'", lambda: sums_of(p, SFT, needs=["sum_p3"])),
        (r"row pass 'compile' is unknown; did you mean 'compiled'", lambda: signals_of(p, implementation="compile")),
        (r"the batch is empty: no supervised token was given", lambda: signals_of(problem(n=0))),
    ]  # fmt: skip
    for message, call in cases:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_hidden_state_that_is_not_finite_is_named(bad: float) -> None:
    p = problem()
    p.hidden[17, 3] = bad
    with pytest.raises(NonFiniteError, match=r"row 17 of 41: nll is .*its hidden state is not finite; check the"):
        signals_of(p, chunk=5)


def test_a_label_that_cannot_be_said_is_named() -> None:
    p = problem(bias=True)
    assert p.bias is not None
    p.bias[p.target[17]] = -torch.inf
    first = int((p.target == p.target[17]).nonzero()[0])
    with pytest.raises(NonFiniteError, match=f"row {first} of 41: nll is inf: .*that of its label is -inf"):
        signals_of(p, chunk=5)


def test_fused_sums_pass_on_what_is_not_finite() -> None:
    """The caller checks once a step, over all processes; here nothing may hide it."""
    p = problem()
    p.hidden[17, 3] = torch.nan
    out = sums_of(p.fresh(), SFT, chunk=5)
    assert torch.isfinite(out.signals.nll).logical_not().nonzero()[:, 0].tolist() == [17]
    assert not torch.isfinite(out.total)
