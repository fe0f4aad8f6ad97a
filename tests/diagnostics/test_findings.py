"""Tightness, regimes, token view, gradients, inference entropy and surface on tables with known answers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tables
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranktuner.diagnostics import tightness as tightness_module
from ranktuner.diagnostics.gradients import BITS_EDGES, P_EDGES, SHAPE_P, gradients, shapes
from ranktuner.diagnostics.inference_entropy import inference_entropy, sample_id
from ranktuner.diagnostics.regimes import regimes
from ranktuner.diagnostics.surface import surface
from ranktuner.diagnostics.table import TokenTable
from ranktuner.diagnostics.tightness import check_bounds, tightness
from ranktuner.diagnostics.tokens import tokens
from ranktuner.errors import DataError, InputError
from ranktuner.findings import Finding
from ranktuner.signals import expected_rank, signals_from_logits

ROUNDING = 5e-5
"""Half a unit of the fifth significant digit, relative: the curves of figures are stored so."""


def from_logits(logits: torch.Tensor, target: torch.Tensor) -> TokenTable:
    signals, expected = signals_from_logits(logits, target), expected_rank(logits)
    return tables.table(
        [["x"] * len(target)],
        p=signals.p.double().tolist(),
        rank=signals.rank.tolist(),
        entropy_bits=signals.entropy_bits.double().tolist(),
        p_max=signals.p_max.double().tolist(),
        expected_rank=expected.tolist(),
        vocab_size=logits.shape[1],
    )


def hundred(**columns: object) -> TokenTable:
    return tables.table([["x"] * 50, ["y"] * 50], **columns)  # type: ignore[arg-type]


def test_every_finding_is_json_and_reads_back() -> None:
    table = hundred(entropy_bits=np.linspace(0, 5, 100), p=np.linspace(0.01, 0.99, 100))
    for finding in (
        tightness({"a": table}),
        regimes({"a": table}, ["sft", "dft"]),
        tokens(table, ["sft"]),
        gradients(table, ["sft"]),
        surface(5),
    ):
        assert Finding.from_json(finding.to_json()) == Finding.from_json(finding.to_json())
        assert json.loads(finding.to_json())["n"] == finding.n


# --- tightness -------------------------------------------------------------------------------------------------------


def test_gaps_by_hand() -> None:
    # R = 2, p = 1/4: 1/R - p = 1/4. H = 3 bits: s = 3; E[R] = 4: 1/3 - 1/4 = 1/12
    table = hundred(p=[0.25] * 80 + [0.5] * 20, rank=2, entropy_bits=3.0, p_max=0.5, expected_rank=4.0)
    found = tightness({"set": table})
    rank, expected = found.numbers["sets"][0]["gaps"]
    assert rank["mean"] == pytest.approx(0.8 * 0.25)
    assert (rank["median"], rank["p80"], rank["min"]) == (
        pytest.approx(0.25),
        pytest.approx(0.25),
        pytest.approx(0, abs=1e-7),
    )
    assert rank["std"] == pytest.approx(0.1)
    assert sum(rank["histogram"]["counts"]) == 100
    assert expected["mean"] == pytest.approx(1 / 12)
    assert expected["std"] == pytest.approx(0, abs=1e-9)
    assert found.protocol["violations"] == 0


def test_densities_count_every_token() -> None:
    table = hundred(entropy_bits=np.linspace(0, 20, 100), p=np.linspace(0.001, 1, 100), rank=1)
    one = tightness({"set": table}).numbers["sets"][0]
    assert np.sum(one["rank_p"]["counts"]) == np.sum(one["entropy_expected_rank"]["counts"]) == 100
    assert len(one["rank_p"]["x_edges"]) == len(one["rank_p"]["counts"]) + 1


@pytest.mark.parametrize(
    ("columns", "broken"),
    [
        ({"p": 0.51, "rank": 2, "p_max": 0.6}, "p <= 1/R"),
        ({"expected_rank": 1.4, "p_max": 0.5}, "s(H) <= E[R]"),
        ({"entropy_bits": 1.0, "p_max": 0.9, "expected_rank": 1.01}, "2 - h^-1(H) <= E[R] (H < 2)"),
    ],
)
def test_a_violation_is_counted_and_named(columns: dict[str, float], broken: str) -> None:
    found = {bound["name"]: bound for bound in check_bounds(hundred(**columns))}
    assert found[broken]["violations"] == 100
    assert found[broken]["worst"] > 0


@given(st.integers(0, 10_000), st.sampled_from([2, 37, 400]), st.floats(0.01, 12))
@settings(max_examples=60, deadline=None)
def test_no_distribution_violates_a_bound(seed: int, vocab_size: int, scale: float) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(64, vocab_size) * scale
    logits[:8] = 0.0  # all tied
    logits[8:16, 0] += 50  # nearly one-hot
    for bound in check_bounds(from_logits(logits, torch.randint(vocab_size, (64,)))):
        assert bound["violations"] == 0, bound


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"gsm8k: 3 tokens, at least 100 are needed for this diagnostic: give more data"
    ):
        tightness({"gsm8k": tables.table([["a", "b", "c"]])})


def test_envelopes_are_the_bounds() -> None:
    curves = tightness_module.envelopes()
    lower = dict(
        zip(curves["entropy_expected_rank"]["entropy_bits"], curves["entropy_expected_rank"]["lower"], strict=True)
    )
    assert lower[0.0] == pytest.approx(1.0, abs=1e-6)
    assert lower[4.0] == pytest.approx(2**4 / 4 + 1)


# --- regimes ---------------------------------------------------------------------------------------------------------


def test_shares_by_hand() -> None:
    # 75 tokens at 1 bit with p = 3/5, 25 at exactly 2 bits (the border belongs to the high side) with p = 1/4
    table = hundred(entropy_bits=[1.0] * 75 + [2.0] * 25, p=[0.6] * 75 + [0.25] * 25, p_max=0.6)
    one = regimes({"set": table}, ["sft", "dft"]).numbers["sets"][0]
    assert (one["low"]["tokens"], one["high"]["tokens"]) == (0.75, 0.25)
    nll = 75 * math.log(5 / 3) + 25 * math.log(4)
    assert one["high"]["nll"] == pytest.approx(25 * math.log(4) / nll)
    sft, dft = one["weights"]
    assert (sft["high"], sft["effective_tokens"]) == (0.25, pytest.approx(1))
    assert dft["high"] == pytest.approx(25 * 0.25 / (75 * 0.6 + 25 * 0.25))
    assert (dft["mean_low"], dft["mean_high"]) == (pytest.approx(0.6), pytest.approx(0.25))
    assert dft["effective_tokens"] == pytest.approx((75 * 0.6 + 25 * 0.25) ** 2 / (100 * (75 * 0.36 + 25 / 16)))
    parts = {part["name"]: part for part in one["quadrants"]}
    assert parts["sure and right"]["tokens"] == 0.75
    assert parts["unsure and wrong"]["tokens"] == 0.25
    assert sum(part["weights"]["dft"] for part in one["quadrants"]) == pytest.approx(1)


def test_one_sided_tables_have_no_mean_on_the_other_side() -> None:
    one = regimes({"set": hundred(entropy_bits=1.0)}, ["sft"]).numbers["sets"][0]
    assert one["weights"][0]["mean_high"] is None
    assert one["high"]["tokens"] == 0


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_the_view_joins_to_the_text_and_points_at_what_is_under_learned() -> None:
    table = tables.table(
        [["The", " cat", "", "漢"], ["B", "!"]],
        rank=[1, 50, 1, 1, 1, 1],
        p=[0.9, 0.001, 0.9, 0.9, 0.9, 0.9],
        p_max=0.9,
        entropy_bits=0.5,
        ids=["a", "b"],
    )
    found = tokens(table, ["sft"], prompts={"a": "Say it."})
    first, second = found.numbers["rows"]
    assert "".join(first["tokens"]["text"]) == first["text"] == "The cat漢"
    assert (first["prompt"], second["prompt"]) == ("Say it.", None)
    assert first["under_learned"] == [1]
    assert second["under_learned"] == []
    assert first["tokens"]["weights"]["sft"] == [1, 1, 1, 1]
    assert found.numbers["ranges"]["rank"] == [1, 50]


def test_rows_can_be_chosen_and_are_whole() -> None:
    table = tables.table([["x"] * 5, ["y"] * 5, ["z"] * 5], ids=["a", "b", "c"])
    assert [row["id"] for row in tokens(table, [], most=11).numbers["rows"]] == ["a", "b"]
    assert [row["id"] for row in tokens(table, [], most=1).numbers["rows"]] == ["a"]
    assert [row["id"] for row in tokens(table, [], rows=["c", "a"]).numbers["rows"]] == ["c", "a"]
    with pytest.raises(InputError, match="no row 'd'"):
        tokens(table, [], rows=["d"])


# --- gradients -------------------------------------------------------------------------------------------------------


def test_shapes_by_formula() -> None:
    (dft,) = shapes("dft")
    p = SHAPE_P
    assert dft["family"] == "p only"
    np.testing.assert_allclose(dft["p"], p, rtol=ROUNDING)
    np.testing.assert_allclose(dft["gradient"], p * (1 - p), rtol=ROUNDING)
    (half,) = shapes("alpha-power(alpha=0.5)")
    np.testing.assert_allclose(half["gradient"], np.sqrt(p) * (1 - p), rtol=ROUNDING)
    curves = shapes("ranktuner")
    assert [curve["at"]["entropy_bits"] for curve in curves] == [0.5, 2.0, 4.0]
    at = int(np.argmin(abs(p - 0.02)))
    # at 4 bits s = 5, R = floor(1/p), K = log2(max(R, s) + 1)^-2, weight (p s)^-K
    k = math.log2(math.floor(1 / p[at]) + 1) ** -2
    assert curves[2]["w"][at] == pytest.approx((p[at] * 5) ** -k, rel=ROUNDING)


def test_mass_by_hand() -> None:
    table = hundred(p=[0.9] * 50 + [0.1] * 50, entropy_bits=[0.25] * 50 + [3.25] * 50, p_max=0.9)
    plane = gradients(table, ["sft", "dft"]).numbers["plane"]
    i, j = np.searchsorted(P_EDGES, 0.9, "right") - 1, np.searchsorted(BITS_EDGES, 0.25) - 1
    sft, dft = plane["methods"]
    assert np.sum(plane["tokens"]) == pytest.approx(1)
    # sft: (1-p) is 0.1 and 0.9; dft: p (1-p) is the same on both sides
    assert np.array(sft["share"])[i - 1 : i + 1, j].sum() == pytest.approx(0.1, rel=1e-5)
    assert sft["quadrants"]["unsure and wrong"] == pytest.approx(0.9, rel=1e-5)
    assert dft["quadrants"]["sure and right"] == pytest.approx(0.5, rel=1e-5)


def test_shapes_need_no_table() -> None:
    found = gradients(None, ["sft", "talr", "deft", "eaft"])
    assert found.numbers["plane"] is None
    assert {shape["name"] for shape in found.numbers["shapes"]} == {"sft", "talr", "deft", "eaft"}


# --- inference entropy -----------------------------------------------------------------------------------------------


def samples(bits: dict[tuple[str, int], list[float]], **meta: object) -> TokenTable:
    return tables.table(
        [["x"] * len(values) for values in bits.values()],
        entropy_bits=[b for values in bits.values() for b in values],
        p_max=0.5,
        ids=[sample_id(*key) for key in bits],
        **meta,  # type: ignore[arg-type]
    )


def test_runs_are_token_means_of_equal_indices() -> None:
    bits = {(f"p#{i}", run): [0.5 + run] * (i + 1) for i in range(4) for run in range(2)}
    bits[("p#0", 0)] = [4.5, 4.5]
    found = inference_entropy({"sft": samples(bits, temperature=0.2, truncated_samples=3)})
    model = found.numbers["models"][0]
    # run 0: two tokens of 4.5 bits and nine of 0.5; run 1: ten tokens of 1.5
    assert model["entropy_bits"]["values"] == [pytest.approx((9 + 4.5) / 11), pytest.approx(1.5)]
    assert model["high_share"]["values"] == [pytest.approx(2 / 11), 0]
    assert model["entropy_bits"]["low"] <= model["entropy_bits"]["mean"] <= model["entropy_bits"]["high"]
    assert (model["samples"], model["tokens"], model["truncated"]) == (8, 21, 3)
    assert (found.protocol["runs"], found.protocol["temperature"]) == (2, 0.2)


def test_temperatures_are_not_mixed() -> None:
    bits = {("p", run): [1.0] for run in range(8)}
    with pytest.raises(DataError, match=r"temperatures \[0\.2, 1\.0\]"):
        inference_entropy({"a": samples(bits, temperature=0.2), "b": samples(bits, temperature=1.0)})


def test_a_table_of_something_else_is_refused() -> None:
    with pytest.raises(DataError, match="not a table of samples"):
        inference_entropy({"a": tables.table([["x"]] * 8, ids=[f"train.jsonl:{i}" for i in range(8)])})
    with pytest.raises(DataError, match="1 samples with text, at least 8 are needed"):
        inference_entropy({"a": samples({("p", 0): [1.0]})})


# --- surface ---------------------------------------------------------------------------------------------------------


def test_surface_by_formula() -> None:
    found = surface(points=4, largest=8.0)
    assert found.numbers["rank"] == pytest.approx([1, 2, 4, 8])
    first = found.numbers["surfaces"][0]
    assert (first["f"], first["g"]) == ("1/log2(1+x)", "2^x")
    assert first["indicator"][2][0] == pytest.approx(2 ** (1 / math.log2(5) - 1), rel=ROUNDING)
    for one in found.numbers["surfaces"]:
        values = np.array(one["indicator"])
        np.testing.assert_allclose(np.diag(values), 1)
        assert (np.diff(values, axis=0) < 0).all(), "a worse rank has a smaller indicator"
        assert (np.diff(values, axis=1) > 0).all()
    assert len(found.numbers["surfaces"]) == 6
    with pytest.raises(InputError, match="at least 2 points"):
        surface(1)
