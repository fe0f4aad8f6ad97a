"""loss.py: one division, raw sums that add up, and values that are the oracle's."""

from __future__ import annotations

import dataclasses
import math

import oracle
import pytest
import torch
import weightings
from drawn import judged, rows, signals_of, tensors
from mpmath import mp, mpf

from ranktuner.errors import InputError
from ranktuner.loss import add_metrics, dense_loss, metrics_of, summarize, weighted_loss
from ranktuner.registry import method
from ranktuner.signals import Signals, signals_from_logits

FAMILIES = ("normal", "heavy-tail", "peaked", "uniform", "ties", "masked")


def batch(vocab: int = 37, count: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return tensors(rows(vocab, seed=21, families=FAMILIES, count=count))


def reported(spec: str, t: oracle.Token) -> mpf:
    """The loss of one token as its method reports it."""
    name, options = weightings.TABLE[spec]
    if name == "alpha-power":
        alpha = mpf(options.get("alpha", 0.5))  # type: ignore[call-overload]
        return (1 - t.p**alpha) / alpha
    value = oracle.weight(name, t, **options) * mpf(t.nll)
    return value - mpf(0.02) * t.entropy_bits * mp.log(2) if name == "entropy-reg" else value


def sizes() -> list[slice]:
    """41 tokens as micro-batches of 30, 8 and 3."""
    return [slice(0, 30), slice(30, 38), slice(38, 41)]


def forty_one() -> tuple[torch.Tensor, torch.Tensor]:
    logits_NV, target_N = tensors(rows(37, seed=41, families=FAMILIES, count=7))
    return logits_NV[:41], target_N[:41]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("spec", weightings.SHORT)
def test_loss_is_the_oracles_sum_over_the_count(spec: str) -> None:
    logits_NV, target_N = batch()
    tokens = judged(logits_NV, target_N)
    assert not any(weightings.unsure(spec, t) for t in tokens)
    want = mp.fsum(reported(spec, t) for t in tokens)
    out = dense_loss(logits_NV, target_N, spec)
    assert out.loss.item() == pytest.approx(float(want / len(tokens)), rel=1e-12)
    assert out.metrics["loss_sum"].item() == pytest.approx(float(want), rel=1e-12)
    counted = dense_loss(logits_NV, target_N, spec, num_tokens=100)
    assert counted.loss.item() == pytest.approx(float(want / 100), rel=1e-12)


@pytest.mark.parametrize(
    ("count", "divisor"), [(41, 41), (0, 1), (-3, 1), (torch.tensor(41), 41), (torch.tensor(0), 1)]
)
def test_the_count_is_at_least_one(count: int | torch.Tensor, divisor: int) -> None:
    logits_NV, target_N = batch()
    out = dense_loss(logits_NV, target_N, "sft", num_tokens=count)
    assert out.loss.item() == pytest.approx(out.metrics["nll_sum"].item() / divisor, rel=1e-14)


def test_an_empty_micro_batch_has_a_gradient_path() -> None:
    nothing = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    none = torch.zeros(0, dtype=torch.long)
    for spec in ("sft", "ranktuner(prior=prob)", "alpha-power", "talr(tau=2)"):
        signals = Signals(nothing * 1, none, none.bool(), nothing.detach(), nothing.detach(), none, 37)
        out = weighted_loss(signals, spec, num_tokens=11)
        assert out.loss.item() == 0
        out.loss.backward()
        assert out.metrics["tokens_sum"] == 0
        assert all(value == 0 for value in out.metrics.values())
    assert nothing.grad is not None


def test_float32_losses_are_near_the_oracle() -> None:
    logits_NV, target_N = batch()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        low = logits_NV.to(dtype)
        want = mp.fsum(reported("ranktuner", t) for t in judged(low, target_N)) / len(target_N)
        assert dense_loss(low, target_N, "ranktuner").loss.item() == pytest.approx(float(want), rel=1e-6)


# ---------------------------------------------------------------- weights brought by the data


def test_row_weights_multiply_the_weight_of_the_nll() -> None:
    logits_NV, target_N = batch()
    tokens = judged(logits_NV, target_N)
    weight = torch.linspace(0, 2, len(tokens), dtype=torch.float64)
    for spec in ("sft", "ranktuner", "alpha-power"):
        want = mp.fsum(mpf(w) * reported(spec, t) for w, t in zip(weight.tolist(), tokens, strict=True))
        out = dense_loss(logits_NV, target_N, spec, row_weight=weight, num_tokens=1)
        assert out.loss.item() == pytest.approx(float(want), rel=1e-12), spec
    sums = dense_loss(logits_NV, target_N, "sft", row_weight=weight).metrics
    assert sums["weight_sum"].item() == pytest.approx(weight.sum().item(), rel=1e-14)
    assert sums["weight_max"].item() == 2


def test_row_weights_leave_the_entropy_term_alone() -> None:
    logits_NV, target_N = batch()
    zero = torch.zeros(len(target_N))
    nats = sum(t.entropy_bits for t in judged(logits_NV, target_N)) * math.log(2)
    out = dense_loss(logits_NV, target_N, "entropy-reg", row_weight=zero, num_tokens=1)
    assert out.loss.item() == pytest.approx(-0.02 * nats, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w[1:], ("(17,)", "(18,)")),
        (lambda w: w[:, None], ("(18, 1)", "(18,)")),
        (lambda w: w.index_fill(0, torch.tensor([4]), -1.0), ("token 4", "-1.0", ">= 0")),
        (lambda w: w.index_fill(0, torch.tensor([5]), math.nan), ("token 5", "nan", "finite")),
        (lambda w: w.index_fill(0, torch.tensor([6]), math.inf), ("token 6", "inf", "finite")),
    ],
)
@pytest.mark.parametrize("spec", ["sft", "overtone(mode=mix)"])
def test_bad_row_weights_are_named(spec: str, change: object, words: tuple[str, ...]) -> None:
    logits_NV, target_N = batch()
    with pytest.raises(InputError) as caught:
        dense_loss(logits_NV, target_N, spec, row_weight=change(torch.ones(18)))  # type: ignore[operator]
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_entropy_term_without_its_gradient_is_refused() -> None:
    logits_NV, target_N = batch()
    signals = signals_from_logits(logits_NV.requires_grad_(), target_N)
    with pytest.raises(InputError, match=r"entropy-reg.*entropy_grad"):
        weighted_loss(signals, "entropy-reg")


# ---------------------------------------------------------------- metrics


def test_metrics_are_the_oracles_sums() -> None:
    logits_NV, target_N = batch()
    tokens = judged(logits_NV, target_N)
    got = {name: value.item() for name, value in dense_loss(logits_NV, target_N, "ranktuner").metrics.items()}
    weight = [oracle.weight("ranktuner", t) for t in tokens]
    k = [oracle.elasticity(oracle.xi(t.rank, oracle.rank_bound(t.entropy_bits, t.p_max))) for t in tokens]
    want = {
        "tokens_sum": len(tokens),
        "loss_sum": mp.fsum(w * t.nll for w, t in zip(weight, tokens, strict=True)),
        "nll_sum": math.fsum(t.nll for t in tokens),
        "weight_sum": mp.fsum(weight),
        "weight_sq_sum": mp.fsum(w * w for w in weight),
        "weight_max": max(weight),
        "k_sum": mp.fsum(k),
        "entropy_bits_sum": math.fsum(t.entropy_bits for t in tokens),
        "high_entropy_sum": sum(t.entropy_bits >= 2 for t in tokens),
        "top1_sum": sum(t.is_top for t in tokens),
    }
    assert set(got) == set(want)
    for name, value in want.items():
        assert got[name] == pytest.approx(float(value), rel=1e-12), name


@pytest.mark.parametrize("spec", weightings.SHORT)
def test_sums_of_micro_batches_are_those_of_the_batch(spec: str) -> None:
    logits_NV, target_N = forty_one()
    whole = dense_loss(logits_NV, target_N, spec)
    parts = [dense_loss(logits_NV[part], target_N[part], spec, num_tokens=41) for part in sizes()]
    added = add_metrics(p.metrics for p in parts)
    for name, value in whole.metrics.items():
        assert added[name].item() == pytest.approx(value.item(), rel=1e-13, abs=1e-15), name
    assert sum(p.loss.item() for p in parts) == pytest.approx(whole.loss.item(), rel=1e-13)


def test_summary_of_a_log_line() -> None:
    tokens = [oracle.token(*row) for row in rows(37, seed=2, families=("normal",), count=5)]
    signals = signals_of(tokens)
    line = summarize(metrics_of(signals, method("dft").terms(signals)))
    p = [float(t.p) for t in tokens]
    assert line["tokens"] == 5
    assert line["weight_mean"] == pytest.approx(sum(p) / 5, rel=1e-12)
    assert line["effective_tokens"] == pytest.approx(sum(p) ** 2 / (5 * sum(x * x for x in p)), rel=1e-12)
    assert line["nll"] == pytest.approx(sum(t.nll for t in tokens) / 5, rel=1e-12)
    assert line["top1"] == sum(t.is_top for t in tokens) / 5
    even = summarize(metrics_of(signals, method("sft").terms(signals)))
    assert even["effective_tokens"] == pytest.approx(1, rel=1e-14)
    assert even["loss"] == pytest.approx(even["nll"], rel=1e-14)


def test_two_bits_are_high_entropy() -> None:
    four = dense_loss(torch.zeros(3, 4, dtype=torch.float64), torch.tensor([0, 1, 2]), "ranktuner")
    assert four.metrics["entropy_bits_sum"] == 6
    assert summarize(four.metrics)["high_entropy_share"] == 1


def test_a_summary_of_nothing_says_why() -> None:
    with pytest.raises(InputError, match=r"no metrics to summarize: .*since the last pop_metrics\(\)"):
        summarize({})


def test_a_metric_that_does_not_say_how_it_reduces_is_refused() -> None:
    one = {"mystery": torch.tensor(1.0)}
    with pytest.raises(InputError, match=r"mystery.*_sum"):
        add_metrics([one, one])


# ---------------------------------------------------------------- overtone's mixed target, dense path only


def mixed_target(logits: list[float], label: int, lam: float) -> list[float]:
    """lam onehot + (1-lam) q, q the prediction within one standard deviation of the top; the label alone otherwise."""
    finite = [z for z in logits if z > -math.inf]
    mean = math.fsum(finite) / len(finite)
    sigma = math.sqrt(math.fsum((z - mean) ** 2 for z in finite) / len(finite))
    top = max(logits)
    kept = [math.exp(z - top) if z >= top - sigma else 0.0 for z in logits]
    mixed = [(1 - lam) * x / math.fsum(kept) + lam * (v == label) for v, x in enumerate(kept)]
    return mixed if mixed[label] >= max(mixed) else [float(v == label) for v in range(len(logits))]


@pytest.mark.parametrize("lam", [0.1, 0.6])
def test_overtone_mix(lam: float) -> None:
    logits_NV, target_N = tensors(rows(37, seed=33, families=("normal", "heavy-tail", "peaked", "masked"), count=6))
    logits_NV.requires_grad_()
    out = dense_loss(logits_NV, target_N, f"overtone(mode=mix, lam={lam})", num_tokens=7)
    out.loss.backward()
    assert logits_NV.grad is not None
    total, mixed_rows = 0.0, 0
    for row, label, gradient in zip(logits_NV.tolist(), target_N.tolist(), logits_NV.grad.tolist(), strict=True):
        logp, target = oracle.log_probs(row), mixed_target(row, label, lam)
        mixed_rows += max(target) < 1
        total -= math.fsum(t * lp for t, lp in zip(target, logp, strict=True) if t)
        assert gradient == pytest.approx(
            [(math.exp(lp) - t) / 7 for lp, t in zip(logp, target, strict=True)], abs=1e-14
        )
    assert 0 < mixed_rows < len(target_N), "both branches of the skip rule"
    assert out.loss.item() == pytest.approx(total / 7, rel=1e-12)


def test_dense_loss_of_replaced_signals_reads_the_replacement() -> None:
    """weighted_loss takes what the Signals say, not what the logits said: the seam that kernels rely on."""
    logits_NV, target_N = batch()
    signals = dataclasses.replace(signals_from_logits(logits_NV, target_N), is_top=torch.ones(18, dtype=torch.bool))
    out = weighted_loss(signals, "overtone(lam=0.25)")
    assert out.loss.item() == pytest.approx(0.25 * signals.nll.mean().item(), rel=1e-14)
