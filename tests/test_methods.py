"""Every method against the oracle, the four tokens by hand, specs, and users' own methods."""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import oracle
import pytest
import torch
import weightings
from drawn import Row, hard, judged, rows, short_rows, signals_of, tensors
from hypothesis import given
from mpmath import mpf

from ranktuner import spec as notation
from ranktuner.errors import InputError, NonFiniteError, RankTunerError, UnsupportedError
from ranktuner.fused import fused_weighted_loss
from ranktuner.loss import dense_loss
from ranktuner.methods import TABLE
from ranktuner.registry import method, names, weighting
from ranktuner.signals import RowTerms, Signals, signals_from_logits

F64, F32 = 1e-12, 5e-6

NAMES = ["sft", "dft", "eaft", "talr", "overtone", "ranktuner", "relative-rank", "alpha-power", "entropy-reg"]
NAMES += ["threshold", "profit", "chord", "deft", "focal", "mile"]


def population(vocab: int = 37, count: int = 4) -> list[oracle.Token]:
    return [oracle.token(logits, label) for logits, label in rows(vocab, seed=vocab, count=count)]


def signals_for(spec: str, tokens: list[oracle.Token], dtype: torch.dtype = torch.float64) -> Signals:
    name, options = weightings.TABLE[spec]
    topk = weightings.topk_of(options, tokens[0].vocab_size) if name == "eaft" else None
    return signals_of(tokens, dtype=dtype, topk=topk, extras=True)


def assert_weights(spec: str, got: torch.Tensor, tokens: list[oracle.Token], tolerance: float) -> None:
    for w, t in zip(got.tolist(), tokens, strict=True):
        if weightings.unsure(spec, t):
            continue
        want = float(weightings.log_weight(spec, t))
        facts = f"nll {t.nll}, R {t.rank}, H {t.entropy_bits}, p_max {t.p_max}"
        assert weightings.agrees(w, spec, t, tolerance), f"{spec} at {facts}: {w!r}, the oracle says e^{want!r}"


# ---------------------------------------------------------------- agreement with the oracle


def test_the_table_holds_every_method() -> None:
    assert {name for name, _ in weightings.TABLE.values()} == set(NAMES)
    assert names()[: len(NAMES)] == NAMES


@pytest.mark.parametrize("spec", list(weightings.TABLE))
def test_weights_agree_with_the_oracle(spec: str) -> None:
    for vocab in (3, 37):
        tokens = population(vocab)
        got = method(spec).weights(signals_for(spec, tokens))
        assert got.dtype == torch.float64
        assert_weights(spec, got, tokens, F64)


@pytest.mark.parametrize("spec", [s for s in weightings.SHORT if "relative" not in s])
@given(row=short_rows())
@hard(40)
def test_weights_of_whatever_hypothesis_draws(spec: str, row: Row) -> None:
    tokens = [oracle.token(*row)]
    assert_weights(spec, method(spec).weights(signals_for(spec, tokens)), tokens, F64)


@given(row=short_rows())
@hard(100)
def test_ranktuner_of_whatever_hypothesis_draws(row: Row) -> None:
    tokens = [oracle.token(*row)]
    for spec in list(weightings.RANKTUNER)[::5]:
        assert_weights(spec, method(spec).weights(signals_for(spec, tokens)), tokens, F64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("spec", [s for s in weightings.TABLE if "xi=" not in s or "xi=max" in s])
def test_from_logits_to_weights(spec: str, dtype: torch.dtype) -> None:
    """The whole way in each dtype: the oracle starts from the same rounded logits."""
    chosen = method(spec)
    # a weight that is a power of nll / K carries nll's roundings; 1e4 is for the tests of finiteness
    families = ("normal", "heavy-tail", "peaked", "uniform", "ties", "masked")
    logits_NV, target_N = tensors(rows(37, seed=5, families=families, count=3), dtype)
    got = chosen.weights(signals_from_logits(logits_NV, target_N, needs=chosen.needs))
    tolerance = 1e-12 if dtype is torch.float64 else 2e-5
    assert_weights(spec, got.double(), judged(logits_NV, target_N), tolerance)


# ---------------------------------------------------------------- properties of all methods


@pytest.mark.parametrize("spec", list(weightings.TABLE))
def test_all_methods_share_these_properties(spec: str) -> None:
    chosen = method(spec)
    tokens = population()
    signals = signals_for(spec, tokens)
    terms = chosen.terms(signals)
    assert terms.w_nll.shape == (len(tokens),)
    assert (terms.w_nll >= 0).all()
    assert terms.w_nll.isfinite().all()
    assert method(str(chosen)).parameters == chosen.parameters, "the canonical spec says the same method"
    assert chosen.paper
    # no gradient flows through a weight, also where the signals carry one
    live = dataclasses.replace(
        signals, nll=signals.nll.clone().requires_grad_(), entropy_bits=signals.entropy_bits.clone().requires_grad_()
    )
    again = chosen.terms(live)
    for column in (again.w_nll, again.w_entropy, again.reported):
        assert column is None or not column.requires_grad
    assert torch.equal(again.w_nll, terms.w_nll)
    # scope "token": each token alone has the weight it has among the others
    assert chosen.scope == "token"
    for i in (0, 7, len(tokens) - 1):
        alone = chosen.weights(signals_for(spec, [tokens[i]]))
        assert torch.allclose(alone, terms.w_nll[i : i + 1], rtol=1e-15, atol=0)


@pytest.mark.parametrize("spec", list(weightings.TABLE))
def test_nothing_overflows_in_float32(spec: str) -> None:
    logits = [[1e4, -1e4, 0.0], [0.0, 1e4, 9.9e3], [-1e4, 1e4, 1e4], [0.0, 0.0, 5e3]]
    tokens = [oracle.token(row, label) for row in logits for label in range(3)]
    assert max(t.nll for t in tokens) >= 1e4
    signals = signals_for(spec, tokens, torch.float32)
    terms = method(spec).terms(signals)
    assert terms.w_nll.dtype == torch.float32
    assert_weights(spec, terms.w_nll, tokens, F32)
    value = terms.w_nll * signals.nll
    assert value.isfinite().all()
    assert value.sum().isfinite()
    assert terms.reported is None or terms.reported.isfinite().all()


def ends(annotation: Any) -> list[Any]:
    """Values at the ends of what an annotation allows; where there is no end, far out."""
    if get_origin(annotation) is Annotated:
        base, limits = get_args(annotation)
        low = 1e-30 if limits.open_low else max(limits.low, -1e6)
        return [base(low), base(min(limits.high, 1e6))]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return [value for part in get_args(annotation) for value in ends(part)]
    return {bool: [False, True], float: [-1e6, 1e6], type(None): [None]}[annotation]


EXTREMES = [
    (name, key, value)
    for name, (function, _) in TABLE.items()
    for key, (annotation, _) in notation.parameters_of(function).items()
    for value in ends(annotation)
    if value not in ("lagged", "mix")
]


@pytest.mark.parametrize(("name", "key", "value"), EXTREMES)
def test_every_allowed_parameter_gives_finite_weights_in_float32(name: str, key: str, value: Any) -> None:
    chosen = method(name, **({"tau": 1.0} if name == "talr" else {}) | {key: value})
    logits_NV, target_N = tensors(rows(300, seed=8, count=3), torch.float32)
    signals = signals_from_logits(logits_NV, target_N, needs=chosen.needs)
    terms = chosen.terms(signals)
    assert (terms.w_nll >= 0).all()
    for column in (terms.w_nll, terms.w_nll * signals.nll, terms.w_entropy, terms.reported):
        assert column is None or column.isfinite().all()


@pytest.mark.parametrize("spec", ["ranktuner", "ranktuner(k=0.5)", "ranktuner(k=exact, xi=geometric)", "relative-rank"])
def test_weight_is_one_at_the_neutral_point(spec: str) -> None:
    for bound_bits in (2.0, 3.0, 6.0):
        s = float(oracle.rank_bound(bound_bits, 0.1))
        signals = Signals(
            nll=torch.tensor([math.log(s)], dtype=torch.float64),
            rank=torch.tensor([2]),
            is_top=torch.tensor([False]),
            entropy_bits=torch.tensor([bound_bits], dtype=torch.float64),
            p_max=torch.tensor([0.1], dtype=torch.float64),
            seq=torch.tensor([0]),
            vocab_size=1000,
        )
        assert method(spec).weights(signals).item() == pytest.approx(1, abs=1e-14)


def test_scale_orders_the_same_surprise_by_how_open_the_context_is() -> None:
    """At one probability, a token weighs more the surer its context: the point of the method."""
    n = 200
    signals = Signals(
        nll=torch.full((n,), 4.0, dtype=torch.float64),
        rank=torch.full((n,), 3),
        is_top=torch.zeros(n, dtype=torch.bool),
        entropy_bits=torch.linspace(2.0, 5.0, n, dtype=torch.float64),
        p_max=torch.full((n,), 0.3, dtype=torch.float64),
        seq=torch.zeros(n, dtype=torch.long),
        vocab_size=1000,
    )
    for spec in ("ranktuner(k=0.3)", "ranktuner", "relative-rank"):
        assert (method(spec).weights(signals).diff() < 0).all(), spec


def test_a_threshold_belongs_to_both_sides() -> None:
    tokens = [oracle.token([0.0, 900.0], 1), oracle.token([0.0, 900.0], 0)]
    signals = signals_of(tokens)
    assert signals.p.tolist() == [1.0, 0.0]
    assert method("threshold(at=1)").weights(signals).tolist() == [1.0, 0.0]
    assert method("threshold(at=0, keep=below)").weights(signals).tolist() == [0.0, 1.0]
    assert method("profit(tau=1)").weights(signals).tolist() == [1.0, 0.0]


# ---------------------------------------------------------------- the four tokens


# p, H in bits, p_max, R -> s(H), xi, K, scale S, mathematics weight p S, all as printed to the digits shown
FOUR_TOKENS = [
    (0.02, 0.30, 0.96, 2, "1.04", "2", "0.398", "4.67", "0.093"),
    (0.02, 6.00, 0.06, 15, "17.00", "17", "0.058", "1.06", "0.021"),
    (0.0004, 5.00, 0.20, 300, "9.00", "300", "0.015", "1.09", "0.0004"),
    (0.97, 0.22, 0.97, 1, "1.03", "1.03", "0.958", "1.00", "0.971"),
]


@pytest.mark.parametrize("row", FOUR_TOKENS)
def test_the_four_tokens(row: tuple[float, float, float, int, str, str, str, str, str]) -> None:
    from ranktuner import bounds

    p, bits, p_max, rank, *printed = row
    signals = Signals(
        nll=-torch.tensor([p], dtype=torch.float64).log(),
        rank=torch.tensor([rank]),
        is_top=torch.tensor([rank == 1]),
        entropy_bits=torch.tensor([bits], dtype=torch.float64),
        p_max=torch.tensor([p_max], dtype=torch.float64),
        seq=torch.tensor([0]),
        vocab_size=50_000,
    )
    s = bounds.rank_bound(signals.entropy_bits, signals.p_max)
    xi = bounds.xi(signals.rank, s)
    got = [
        s,
        xi,
        bounds.elasticity(xi),
        method("ranktuner").weights(signals),
        method("ranktuner(prior=prob)").weights(signals),
    ]
    for value, text in zip(got, printed, strict=True):
        digits = len(text.partition(".")[2])
        assert f"{value.item():.{digits}f}" == text
    assert method("dft").weights(signals).item() == pytest.approx(p, rel=1e-14)


# ---------------------------------------------------------------- talr's temperature


def batch_of_sequences() -> tuple[list[oracle.Token], list[int]]:
    tokens = [oracle.token(*row) for row in rows(37, seed=9, families=("normal", "peaked", "ties"), count=4)]
    return tokens, [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 2, 5]


@pytest.mark.parametrize("sequences", [5, 4])
def test_talr_of_a_micro_batch(sequences: int) -> None:
    tokens, seq = batch_of_sequences()
    if sequences == 4:
        tokens, seq = tokens[:-1], seq[:-1]
    chosen = method("talr(tau=micro-batch)")
    assert chosen.scope == "batch"
    tau = oracle.tau([t.nll for t in tokens], seq)
    got = chosen.weights(signals_of(tokens, seq)).tolist()
    assert [abs(w - oracle.weight("talr", t, tau=tau)) <= 1e-12 for w, t in zip(got, tokens, strict=True)] == [
        True
    ] * len(got)


def test_talr_of_a_batch_known_by_heart_stays_finite() -> None:
    tokens = [oracle.token([0.0, 900.0], 1)] * 3
    assert all(t.nll == 0 for t in tokens)
    assert method("talr(tau=micro-batch)").weights(signals_of(tokens)).tolist() == [1.0, 1.0, 1.0]


def test_talr_serves_the_step_before() -> None:
    tokens, seq = batch_of_sequences()
    chosen = method("talr")
    assert chosen.context is not None
    with pytest.raises(UnsupportedError, match=r"(?s)first step.*(prime|micro-batch)"):
        chosen.weights(signals_of(tokens, seq))
    nll = torch.tensor([t.nll for t in tokens], dtype=torch.float64)
    chosen.context.prime(nll, torch.tensor(seq))
    first = oracle.tau([t.nll for t in tokens], seq)
    # the next step is twice as hard, in two micro-batches: sequences 0 to 2, then 3 and 5
    late = [i for i, s in enumerate(seq) if s >= 3]
    early = [i for i, s in enumerate(seq) if s < 3]
    for part in (early, late):
        chosen.context.collect(2 * nll[part], torch.tensor(seq)[part])
        got = chosen.weights(signals_of(tokens, seq))[0].item()
        assert got == pytest.approx(float(oracle.weight("talr", tokens[0], tau=first)), rel=1e-12), "not yet"
    chosen.context.advance()
    got = chosen.weights(signals_of(tokens, seq))[0].item()
    assert got == pytest.approx(float(oracle.weight("talr", tokens[0], tau=2 * first)), rel=1e-12)
    # a third step knows nothing of the second
    chosen.context.collect(3 * nll, torch.tensor(seq))
    chosen.context.advance()
    got = chosen.weights(signals_of(tokens, seq))[0].item()
    assert got == pytest.approx(float(oracle.weight("talr", tokens[0], tau=3 * first)), rel=1e-12)
    # and a checkpoint brings it back
    resumed = method("talr")
    assert resumed.context is not None
    resumed.context.load_state_dict(chosen.context.state_dict())
    assert torch.equal(resumed.weights(signals_of(tokens, seq)), chosen.weights(signals_of(tokens, seq)))


def test_two_methods_do_not_share_their_temperature() -> None:
    one, other = method("talr"), method("talr")
    assert one.context is not None
    one.context.prime(torch.ones(3), torch.zeros(3, dtype=torch.long))
    assert other.context is not None
    assert not other.context.ready


def test_talr_refuses_the_state_of_another_method() -> None:
    chosen = method("talr")
    assert chosen.context is not None
    with pytest.raises(InputError, match=r"momentum.*tau"):
        chosen.context.load_state_dict({"momentum": 1})


# ---------------------------------------------------------------- specs


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("sft", "sft"),
        (" ranktuner( prior = prob , k=0.5 ) ", "ranktuner(prior=prob, k=0.5)"),
        ("ranktuner(prior=uniform, xi=max, k=dynamic, drop=none, cap=none)", "ranktuner"),
        ("eaft(k=20, alpha=1)", "eaft"),
        ("threshold(weighted=true)", "threshold(weighted=true)"),
        ("talr(tau=lagged)", "talr"),
        ("talr(tau=2)", "talr(tau=2)"),
        ("ranktuner(cap=3)", "ranktuner(cap=3)"),
    ],
)
def test_canonical_spec(text: str, canonical: str) -> None:
    assert str(method(text)) == canonical


def test_parameters_as_values() -> None:
    assert str(method("ranktuner", prior="prob", k=0.5)) == "ranktuner(prior=prob, k=0.5)"
    assert method(method("dft")).name == "dft"


BAD_SPECS = {
    "ranktunr": ("ranktunr", "ranktuner"),
    "RankTuner": ("RankTuner", "ranktuner"),
    "xyzzy": ("xyzzy", "ranktuner", "sft"),
    "ranktuner(priro=prob)": ("priro", "prior"),
    "sft(alpha=1)": ("alpha", "no parameters"),
    "ranktuner(prior=probability)": ("probability", "uniform", "prob"),
    "ranktuner(k=-1)": ("-1", "at least 0", "dynamic"),
    "ranktuner(k=dynmic)": ("dynmic", "dynamic"),
    "ranktuner(cap=0)": ("0", "above 0"),
    "ranktuner(cap=inf)": ("inf", "above 0"),
    "ranktuner(k=nan)": ("nan", "at least 0"),
    "eaft(k=1)": ("1", "at least 2"),
    "eaft(k=2.5)": ("2.5", "whole"),
    "eaft(alpha=-0.1)": ("-0.1", "at least 0"),
    "talr(floor=2)": ("2", "at most 1"),
    "talr(tau=0)": ("0", "at least 1e-06"),
    "talr(tau=-2)": ("-2", "lagged", "at least 1e-06"),
    "talr(tau=laged)": ("laged", "lagged"),
    "overtone(lam=1.5)": ("1.5", "at most 1"),
    "overtone(mode=gates)": ("gates", "gate"),
    "relative-rank(f=inv-lg)": ("inv-lg", "inv-log"),
    "relative-rank(g=exp3)": ("exp3", "exp2"),
    "alpha-power(alpha=0)": ("0", "at least 1e-06"),
    "entropy-reg(alpha=-1)": ("-1", "at least 0"),
    "threshold(at=1.2)": ("1.2", "at most 1"),
    "threshold(keep=abve)": ("abve", "above"),
    "threshold(weighted=yes)": ("yes", "true"),
    "profit(tau=-0.1)": ("-0.1", "at least 0"),
    "focal(gamma=-2)": ("-2", "at least 0"),
    "ranktuner(prior)": ("prior", "key=value"),
    "ranktuner(prior=prob": ("ranktuner(prior=prob", "name(key=value"),
    "ranktuner(k=1, k=2)": ("k", "twice"),
    "": ("name(key=value",),
    "no_such_module:weight": ("no_such_module", "import"),
    "math:sqroot": ("sqroot", "sqrt"),
    "math:pi": ("float", "function"),
}


@pytest.mark.parametrize("text", list(BAD_SPECS))
def test_bad_specs_are_named(text: str) -> None:
    with pytest.raises(InputError) as caught:
        method(text)
    message = str(caught.value)
    assert all(word in message for word in BAD_SPECS[text]), message


@pytest.mark.parametrize("value", [None, 3, math.sqrt])
def test_what_is_no_spec_at_all(value: object) -> None:
    with pytest.raises(InputError, match=r"method is .*ranktuner\(prior=prob\).* was expected: .*by import path"):
        method(value)  # type: ignore[arg-type]


def test_a_parameter_given_twice_by_text_and_value() -> None:
    with pytest.raises(InputError, match=r"k.*once"):
        method("ranktuner(k=1)", k=2)


@pytest.mark.parametrize(
    ("spec", "need"), [("eaft", "topk_entropy:20"), ("eaft(k=7)", "topk_entropy:7"), ("deft", "sum_p2")]
)
def test_a_signal_that_was_not_taken_is_named(spec: str, need: str) -> None:
    assert need in method(spec).needs
    with pytest.raises(InputError, match=need):
        method(spec).weights(signals_of(population()))


def test_overtone_mix_names_the_dense_path() -> None:
    with pytest.raises(UnsupportedError, match=r"dense_loss.*gate"):
        method("overtone(mode=mix)").weights(signals_of(population()))


# ---------------------------------------------------------------- a user's own


@pytest.fixture
def mine() -> Iterator[types.ModuleType]:
    module = types.ModuleType("mine_for_tests")
    sys.modules["mine_for_tests"] = module
    yield module
    del sys.modules["mine_for_tests"]


def test_a_users_function_by_import_path(mine: types.ModuleType) -> None:
    def weight(s: Signals, *, power: float = 1.0) -> torch.Tensor:
        return s.p_max**power

    mine.weight = weight  # type: ignore[attr-defined]
    chosen = method("mine_for_tests:weight(power=2)")
    signals = signals_of(population())
    assert torch.equal(chosen.weights(signals), signals.p_max**2)
    assert str(chosen) == "mine_for_tests:weight(power=2)"
    with pytest.raises(InputError, match=r"pwer.*power"):
        method("mine_for_tests:weight(pwer=2)")


def test_parameters_of_a_users_function_that_cannot_be_given_or_left_out(mine: types.ModuleType) -> None:
    mine.plain = lambda s, power: s.p**power  # type: ignore[attr-defined]
    mine.bare = lambda s, *, power: s.p**power  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"parameter 'power'; it is positional; make it a keyword: def .*, \*, power="):
        method("mine_for_tests:plain(power=2)")
    with pytest.raises(InputError, match=r"'power' has no default and was not given; write mine.*bare\(power="):
        method("mine_for_tests:bare")
    assert method("mine_for_tests:bare(power=2)").parameters == {"power": 2.0}


@pytest.mark.parametrize(
    "weight", [lambda s: s.p / s.p.mean(), lambda s: s.nll > s.nll.median(), lambda s: torch.rand_like(s.p)]
)
def test_a_weight_that_depends_on_other_tokens_must_say_so(weight: Any, mine: types.ModuleType) -> None:
    """The kernels would call it chunk by chunk, and the result would depend on the size of a chunk."""
    tokens = population()
    mine.weight = weight  # type: ignore[attr-defined]
    with pytest.raises(
        InputError, match=r"gives token \d+ the weight .* among 36 tokens and .*weighting\(scope='batch'"
    ):
        method("mine_for_tests:weight").weights(signals_of(tokens))
    mine.weight = weighting(scope="batch")(weight)  # type: ignore[attr-defined]
    chosen = method("mine_for_tests:weight")
    assert chosen.scope == "batch"
    assert chosen.weights(signals_of(tokens)).isfinite().all()
    with pytest.raises(InputError, match=r"scope is 'batches'; did you mean 'batch'"):
        weighting(scope="batches")  # type: ignore[arg-type]


def test_a_batch_scoped_weight_sees_the_whole_micro_batch_whatever_the_chunks(mine: types.ModuleType) -> None:
    mine.weight = weighting(scope="batch")(lambda s: s.p / s.p.mean())  # type: ignore[attr-defined]
    draw = torch.Generator().manual_seed(0)
    hidden_ND, head_VD = torch.randn(41, 8, generator=draw), torch.randn(37, 8, generator=draw)
    target_N = torch.randint(0, 37, (41,), generator=draw)
    dense = dense_loss(hidden_ND @ head_VD.T, target_N, "mine_for_tests:weight").loss.item()
    for chunk in (7, 41):
        fused = fused_weighted_loss(hidden_ND, head_VD, target_N, "mine_for_tests:weight", chunk=chunk)
        assert fused.loss.item() == pytest.approx(dense, rel=1e-5)


def test_a_mask_of_bools_is_a_weight_like_any_other(mine: types.ModuleType) -> None:
    mine.weight = lambda s: s.rank <= 5  # type: ignore[attr-defined]
    chosen = method("mine_for_tests:weight")
    draw = torch.Generator().manual_seed(0)
    hidden_ND, head_VD = torch.randn(41, 8, generator=draw), torch.randn(37, 8, generator=draw)
    target_N = torch.randint(0, 37, (41,), generator=draw)
    half = torch.full((41,), 0.5)
    dense = dense_loss(hidden_ND @ head_VD.T, target_N, chosen, row_weight=half)
    fused = fused_weighted_loss(hidden_ND, head_VD, target_N, chosen, row_weight=half)
    kept = signals_from_logits(hidden_ND @ head_VD.T, target_N)
    want = 0.5 * (kept.nll * (kept.rank <= 5)).sum() / 41
    assert dense.loss.item() == pytest.approx(want.item(), rel=1e-5)
    assert fused.loss.item() == pytest.approx(want.item(), rel=1e-5)


def test_a_users_module_that_does_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_written.py").write_text("def weight(s):\n    return s.p *\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"'half_written' cannot be imported: SyntaxError: .*; is it installed"):
        method("half_written:weight")


@pytest.mark.parametrize("need", ["expected_rank", "mass_above", "sum_p2", "topk_entropy:9"])
def test_a_users_function_says_what_it_reads(need: str, mine: types.ModuleType) -> None:
    name = need.partition(":")[0]
    mine.weight = weighting(needs=[need])(lambda s: getattr(s, name).to(s.nll.dtype))  # type: ignore[attr-defined]
    chosen = method("mine_for_tests:weight")
    assert chosen.needs == {need}
    logits_NV, target_N = tensors(rows(37, seed=1))
    signals = signals_from_logits(logits_NV, target_N, needs=chosen.needs)
    assert torch.equal(chosen.weights(signals), getattr(signals, name))
    with pytest.raises(InputError, match=f"{need}.*needs="):
        chosen.weights(signals_from_logits(logits_NV, target_N))


def at_three(value: float) -> object:
    def weight(s: Signals) -> torch.Tensor:
        w = torch.ones_like(s.nll)
        w[3] = value
        return w

    return weight


BAD_WEIGHTS = {
    "negative": (at_three(-0.5), InputError, ("-0.5", "token 3", "p=", ">= 0")),
    "NaN": (at_three(math.nan), NonFiniteError, ("nan", "token 3", "finite")),
    "infinite": (at_three(math.inf), NonFiniteError, ("inf", "token 3", "finite")),
    "too few": (lambda s: s.nll[1:], InputError, ("35", "36")),
    "a scalar": (lambda s: s.nll.mean(), InputError, ("()", "36")),
    "a number": (lambda s: 1.0, InputError, ("float", "36")),
    "nothing": (lambda s: None, InputError, ("NoneType", "36")),
    "bad terms": (lambda s: RowTerms(-s.nll - 1), InputError, ("-", ">= 0")),
    "entropy of the wrong shape": (lambda s: RowTerms(s.nll, w_entropy=s.nll[1:]), RankTunerError, ("35", "36")),
    "entropy of NaN": (lambda s: RowTerms(s.nll, w_entropy=s.nll * math.nan), RankTunerError, ("nan", "finite")),
    "report of the wrong shape": (lambda s: RowTerms(s.nll, reported=s.nll[1:]), RankTunerError, ("35", "36")),
}


@pytest.mark.parametrize("case", list(BAD_WEIGHTS))
def test_bad_weights_of_a_user_are_named(case: str, mine: types.ModuleType) -> None:
    mine.weight, kind, words = BAD_WEIGHTS[case]  # type: ignore[attr-defined]
    tokens = population()
    assert len(tokens) == 36
    with pytest.raises(kind) as caught:
        method("mine_for_tests:weight").weights(signals_of(tokens))
    message = str(caught.value)
    assert "mine_for_tests:weight" in message
    assert all(word in message for word in words), message


def test_oracle_ceiling_is_the_packages() -> None:
    from ranktuner.methods import LN_WEIGHT_MAX

    assert mpf(weightings.LN_WEIGHT_MAX) == LN_WEIGHT_MAX
