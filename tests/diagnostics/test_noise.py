"""The noise protocol on tables whose precision and recall can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.diagnostics import noise as module
from ranktuner.diagnostics.noise import control_spans, first_sentence, insert_at_middle, noise, plant, planted_tokens
from ranktuner.diagnostics.summaries import TopShare
from ranktuner.errors import DataError, InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat sat down. Then it left.", "The cat sat down."),
        ("Is it so? Yes.", "Is it so?"),
        ("Pi is 3.14 today! More.", "Pi is 3.14 today!"),
        ("a line without an end\nanother one.", "a line without an end"),
        ("  Leading space is cut. X", "Leading space is cut."),
        ("1. Eat well", None),
        ("", None),
        ("Two words.", None),
    ],
)
def test_first_sentence(text: str, expected: str | None) -> None:
    assert first_sentence(text) == expected


def test_the_piece_goes_to_the_white_space_nearest_the_middle() -> None:
    text = "aaaa bbbb cccc dddd"  # middle 9.5: the space at 9 is nearest
    new, start, end = insert_at_middle(text, "No such thing.")
    assert new == "aaaa bbbb No such thing. cccc dddd"
    assert (start, end) == (9, 24)
    assert new[start:end] == " No such thing."


def test_text_without_inner_white_space_gets_it_at_the_end() -> None:
    assert insert_at_middle("word ", "x y z.")[0] == "word  x y z."


@given(st.text(max_size=60), st.text(min_size=1, max_size=20))
def test_taking_the_piece_out_gives_the_text_back(text: str, sentence: str) -> None:
    new, start, end = insert_at_middle(text, sentence)
    assert new[:start] + new[end:] == text
    assert new[start:end] == " " + sentence


def test_planting_is_a_share_and_follows_the_seed() -> None:
    texts, words = [f"one two three {i}" for i in range(50)], [f"Noise number {i} here." for i in range(9)]
    planted = plant(texts, words, seed=3)
    assert len(planted.pieces) == 5  # 0.1 of 50
    assert planted == plant(texts, words, seed=3)
    assert planted.pieces.keys() != plant(texts, words, seed=4).pieces.keys()
    changed = {i for i in range(50) if planted.texts[i] != texts[i]}
    assert changed == set(planted.pieces)
    assert len({piece for _, piece in planted.pieces.values()}) == 5, "no sentence is used twice"


def test_planting_needs_enough_sentences_and_a_real_share() -> None:
    with pytest.raises(DataError, match=r"the noise data: 1 sentences to insert, at least 2 are needed"):
        plant(["a b c"] * 20, ["one"], seed=0)
    with pytest.raises(InputError, match=r"corruption ratio 1\.5: expected a share between 0 and 1"):
        plant(["a b c"] * 20, ["one"], seed=0, ratio=1.5)


def rows_with_noise() -> list[list[str]]:
    """20 rows of 10 tokens; rows 3 and 7 hold the two-token piece ' x y' at tokens 4 and 5."""
    rows = [[f"{c}{i}" for c in "abcdefghij"] for i in range(20)]
    for number in (3, 7):
        rows[number][4:6] = [" x", " y"]
    return rows


PLANTED = {"3": [8, " x y"], "7": [8, " x y"]}


def test_planted_tokens_are_found_by_their_text() -> None:
    table = tables.table(rows_with_noise(), planted=PLANTED)
    assert np.flatnonzero(planted_tokens(table)).tolist() == [34, 35, 74, 75]


def test_a_token_that_only_touches_the_piece_counts_and_the_nearest_occurrence_is_meant() -> None:
    rows = [["7", "2", " is ", "7", "2.", " end"]]
    table = tables.table(rows, planted={"0": [6, "72"]})
    assert planted_tokens(table).tolist() == [False, False, False, True, True, False]


def test_a_part_of_a_character_goes_with_its_character() -> None:
    table = tables.table([["a", "", "é", "b"]], planted={"0": [1, "é"]})
    assert planted_tokens(table).tolist() == [False, True, True, False]


def test_a_table_without_planted_noise_is_refused() -> None:
    with pytest.raises(DataError, match="has no planted noise"):
        planted_tokens(tables.table([["a"]]))


def test_control_spans_have_the_noise_spans_lengths_in_the_middle() -> None:
    table = tables.table(rows_with_noise(), planted=PLANTED)
    spans = control_spans(table, planted_tokens(table), seed=0)
    assert spans[3] == (34, 36)
    assert spans[0] == (4, 6)  # two of ten tokens, from the middle
    assert all(b - a == 2 for a, b in spans)


def test_precision_recall_and_hits_by_hand() -> None:
    # 200 tokens, 4 of noise; the top 10 % are 20 tokens. Entropy: three noise tokens and 17 others are highest.
    bits = np.full(200, 1.0)
    bits[[34, 35, 74]] = 9.0
    bits[100:117] = 8.0
    # -ln p: no noise token among the top 20
    p = np.full(200, 0.5)
    p[150:170] = 0.01
    table = tables.table(rows_with_noise(), p=p, entropy_bits=bits, p_max=0.5, planted=PLANTED, seed=5)
    found = noise([table])
    by_name = {score["name"]: score for score in found.numbers["scores"]}
    assert by_name["entropy"]["token_recall"]["mean"] == 3 / 4
    assert by_name["entropy"]["token_precision"]["mean"] == 3 / 20
    assert by_name["probability"]["token_recall"]["mean"] == 0.0
    # rows: the top 10 % are 2 of 20. Spans are tokens 4 and 5: row 3 has (9+9)/2, row 7 (9+1)/2, row 10 (8+8)/2
    assert by_name["entropy"]["sequence_hits"] == [1.0]
    assert by_name["entropy"]["sequence_hit"]["mean"] == 0.5
    assert found.n == 200
    assert found.protocol["seeds"] == [5]
    assert found.numbers["by_seed"] == [{"seed": 5, "rows": 20, "corrupted": 2, "tokens": 200, "noise_tokens": 4}]


def test_a_constant_weight_finds_exactly_chance() -> None:
    table = tables.table(rows_with_noise(), planted=PLANTED)
    sft = {s["name"]: s for s in noise([table], ["sft"]).numbers["scores"]}["sft"]
    assert sft["kind"] == "weight"
    assert sft["token_recall"]["mean"] == pytest.approx(0.1)
    assert sft["token_precision"]["mean"] == pytest.approx(4 / 200)
    assert sft["sequence_hits"] == [pytest.approx(0.2)]


def test_seeds_are_averaged_and_the_interval_holds_the_mean() -> None:
    def one(seed: int, high: list[int]) -> object:
        bits = np.full(200, 1.0) + np.linspace(0, 0.01, 200)
        bits[high] = 9.0
        return tables.table(rows_with_noise(), entropy_bits=bits, p_max=0.5, planted=PLANTED, seed=seed)

    found = noise([one(0, [34, 35]), one(1, [34, 35, 74, 75])])  # type: ignore[list-item]
    recall = found.numbers["scores"][0]["token_recall"]
    assert recall["values"] == [0.5, 1.0]
    assert recall["mean"] == 0.75
    assert recall["low"] <= 0.75 <= recall["high"]
    assert found.protocol["seeds"] == [0, 1]


def test_too_few_rows_are_refused() -> None:
    table = tables.table(rows_with_noise()[:8], planted=PLANTED)
    with pytest.raises(DataError, match="8 rows, at least 20 are needed"):
        noise([table])


def test_a_piece_cut_off_by_the_length_limit_counts_as_clean() -> None:
    table = tables.table(rows_with_noise(), planted={**PLANTED, "9": [90, " never there"]})
    assert module.noise([table]).numbers["by_seed"][0]["corrupted"] == 2


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40),
    st.sampled_from([0.1, 0.25, 0.5]),
)
def test_top_share_counts_ties_in_proportion(items: list[tuple[int, bool, int]], share: float) -> None:
    """Against the definition: the expected number of positives when ties are broken at random, items repeated."""
    score, positive, times = (np.array(column) for column in zip(*items, strict=True))
    pool = [(s, g) for s, g, t in items for _ in range(t)]
    limit = float(np.round(share * len(pool)))
    left, expected = limit, 0.0
    for value in sorted({s for s, _ in pool}, reverse=True):
        group = [g for s, g in pool if s == value]
        taken = min(left, len(group))
        expected += taken * sum(group) / len(group)
        left -= taken
    hits, selected, total = TopShare(score.astype(float), positive).hits(share, times)
    assert hits == pytest.approx(expected)
    assert (selected, total) == (limit, sum(g for _, g in pool))


def test_recall_is_split_by_length_and_place_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    # rows of ten tokens; one piece of two tokens and, in the second table, one of a single token
    monkeypatch.setattr(module, "LENGTHS", (1, 2))
    monkeypatch.setattr(module, "DEPTHS", (1,))
    bits = np.full(200, 1.0)
    bits[[34, 75]] = 9.0  # the first token of the first piece, the second token of the other
    bits[100:118] = 8.0
    table = tables.table(rows_with_noise(), entropy_bits=bits, p_max=0.5, planted=PLANTED)
    entropy = noise([table, table]).numbers["scores"][0]
    assert entropy["recall_by_length"] == [
        {"up_to": 1, "noise_tokens": 0, "token_recall": None},
        {"up_to": 2, "noise_tokens": 8, "token_recall": 0.5},
        {"up_to": None, "noise_tokens": 0, "token_recall": None},
    ]
    bits[75] = 1.0
    table = tables.table(rows_with_noise(), entropy_bits=bits, p_max=0.5, planted=PLANTED)
    assert noise([table]).numbers["scores"][0]["recall_by_depth"] == [
        # one of the 181 tokens with equal entropies is the twentieth: each counts as a share of it
        {"up_to": 1, "noise_tokens": 2, "token_recall": pytest.approx((1 + 1 / 181) / 2)},
        {"up_to": None, "noise_tokens": 2, "token_recall": pytest.approx(1 / 181)},
    ]
