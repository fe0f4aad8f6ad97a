"""Suspects on tables in which one row is foreign, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.data.shapes import Row
from ranktuner.diagnostics.planting import answer_of, draw, plant_answers, plant_numbers, plant_sentences, sentences_of
from ranktuner.diagnostics.suspects import _heaviest, inspect_data, records, recovery, suspects
from ranktuner.diagnostics.table import TokenTable
from ranktuner.errors import DataError, InputError


def foreign(rows: dict[int, tuple[int, int]], ending: int | None = None, **meta: object) -> TokenTable:
    """30 rows of 20 tokens with small random numbers; tokens a to b of the given rows are surprising and open."""
    rng = np.random.default_rng(0)
    p, bits = rng.uniform(0.6, 0.9, 600), rng.uniform(0.2, 1.0, 600)
    for quiet in (4, 10, 12):  # beside the passages, so that none runs on by chance
        p[quiet::20], bits[quiet::20] = 0.9, 0.2
    for row, (a, b) in rows.items():
        p[20 * row + a : 20 * row + b] = 0.01
        bits[20 * row + a : 20 * row + b] = 6.0
    if ending is not None:
        p[20 * ending + 16] = 0.001
        p[20 * ending + 17] = 0.01
    texts = [[f" w{i}" for i in range(20)] for _ in range(30)]
    return tables.table(texts, p=p, entropy_bits=bits, p_max=0.9, **meta)  # type: ignore[arg-type]


def test_the_foreign_passage_is_first_and_its_span_is_exact() -> None:
    first, *others = suspects(foreign({7: (5, 12)}))
    assert first.row == 7
    assert first.reason == "passage"
    assert first.span == (145, 152)
    assert first.score > 3 * others[0].score


def test_an_ending_that_does_not_follow_is_first_by_that_trace() -> None:
    table = foreign({7: (2, 8)}, ending=4)
    assert suspects(table, by="ending")[0].row == 4
    assert suspects(table, by="passage")[0].row == 7
    assert {s.row for s in suspects(table)[:2]} == {4, 7}
    with pytest.raises(InputError, match="order by 'token': expected score, passage or ending"):
        suspects(table, by="token")


@given(st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=12))
def test_the_heaviest_stretch_is_the_heaviest(values: list[float]) -> None:
    best = max(sum(values[i:j]) for i in range(len(values)) for j in range(i + 1, len(values) + 1))
    total, start, end = _heaviest(np.array(values))
    assert total == best == sum(values[start:end])
    assert start < end


def test_what_stands_out_is_what_is_shown() -> None:
    table = foreign({7: (5, 12)}, ending=4)
    by_ending, by_passage = (inspect_data(table, by=by).numbers["rows"][0] for by in ("ending", "passage"))
    assert (by_ending["id"], by_ending["span"]["text"]) == ("4", "".join(f" w{i}" for i in range(14, 20)))
    assert by_ending["reason"] == "an ending that does not follow"
    assert by_ending["score"] == by_ending["traces"]["ending"]
    assert (by_passage["id"], by_passage["span"]["text"]) == ("7", "".join(f" w{i}" for i in range(5, 12)))
    for row in inspect_data(table).numbers["rows"]:
        assert row["score"] == max(row["traces"].values())
    placed = [row["score"] for row in inspect_data(table, by="ending").numbers["rows"]]
    assert placed == sorted(placed, reverse=True)


def test_what_is_said_of_a_row() -> None:
    table = foreign({7: (5, 12)})
    finding = inspect_data(table, most=3, prompts={"7": "Why?"})
    row = finding.numbers["rows"][0]
    assert (row["place"], row["id"], row["tokens"], row["prompt"]) == (1, "7", 20, "Why?")
    assert row["span"]["text"] == "".join(f" w{i}" for i in range(5, 12))
    assert row["text"][row["span"]["start"] : row["span"]["end"]] == row["span"]["text"]
    assert row["span"]["mean_entropy_bits"] == pytest.approx(6)
    assert row["span"]["mean_nll"] == pytest.approx(-np.log(0.01), rel=1e-6)
    assert len(finding.numbers["rows"]) == 3
    assert (finding.n, finding.numbers["of_rows"], finding.numbers["planted"]) == (30, 30, None)
    flat = records(table)
    assert len(flat) == 30
    assert flat[0]["span_text"] == row["span"]["text"]
    assert flat[0]["traces_passage"] == row["traces"]["passage"]


def test_recovery_by_hand() -> None:
    # rows 7 and 9 are planted; 7 is found, 9 looks clean, and row 3 looks foreign but is not planted
    text = "".join(f" w{i}" for i in range(5, 12))
    at = len("".join(f" w{i}" for i in range(5)))
    table = foreign({7: (5, 12), 3: (5, 10)}, planted={"7": [at, text], "9": [at, text]})
    found = recovery("test", table)
    assert (found["planted"], found["rows"]) == (2, 30)
    assert found["row_precision"] == found["row_recall"] == 0.5
    # shown: 7 tokens of row 7 and 5 of row 3; planted: 7 of row 7 and 7 of row 9
    assert found["span_precision"] == pytest.approx(7 / 12)
    assert found["span_recall"] == pytest.approx(7 / 14)
    order = [s.row for s in suspects(table)]
    better = sum(order.index(bad) < order.index(good) for bad in (7, 9) for good in range(30) if good not in (7, 9))
    assert found["auc"] == pytest.approx(better / (2 * 28))
    assert set(found["by_trace"]) == {"passage", "ending"}


def test_too_few_rows() -> None:
    with pytest.raises(DataError, match="1 rows, at least 20 are needed"):
        suspects(tables.table([["a"] * 30]))


# --- planting --------------------------------------------------------------------------------------------------------


def rows(count: int = 30) -> list[Row]:
    def one(i: int) -> Row:
        answer = {"role": "assistant", "content": f"Take {i} and add 5.\n#### {i + 5}"}
        return Row(f"f:{i}", ({"role": "user", "content": "q"}, answer))

    return [one(i) for i in range(count)]


def test_numbers_are_changed_at_their_last_place_only() -> None:
    changed, pieces = plant_numbers(rows(), seed=1)
    assert len(pieces) == 3
    for number, (at, piece) in pieces.items():
        before, after = answer_of(rows()[int(number)]), answer_of(changed[int(number)])
        assert after[at : at + len(piece)] == piece
        assert piece != before[at:]
        assert (before[:at], len(before)) == (after[:at], len(after))
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_answers_change_places() -> None:
    changed, pieces = plant_answers(rows(), seed=1)
    moved = [i for i in range(30) if changed[i] != rows()[i]]
    assert [str(i) for i in moved] == list(pieces)
    assert sorted(answer_of(r) for r in changed) == sorted(answer_of(r) for r in rows())
    assert [r.messages[0] for r in changed] == [r.messages[0] for r in rows()]


def test_sentences_are_planted_in_answers() -> None:
    changed, pieces = plant_sentences(rows(), [f"Foreign words number {i}." for i in range(5)], seed=0)
    for number, (at, piece) in pieces.items():
        assert answer_of(changed[int(number)])[at : at + len(piece)] == piece
        assert piece.startswith(" Foreign words")


def test_rows_without_text_to_change_are_named() -> None:
    with pytest.raises(DataError, match="f:1: no answer text to plant noise in"):
        answer_of(Row("f:1", input_ids=(1, 2), labels=(1, 2)))
    with pytest.raises(DataError, match="the noise data: 1 answers that begin with a sentence"):
        sentences_of(rows(5)[:1], 2)


def test_rows_are_drawn_by_the_seed_in_their_order() -> None:
    some = draw(rows(), 5, seed=2)
    assert some == draw(rows(), 5, seed=2)
    assert [r.id for r in some] == [r.id for r in rows() if r in some]
    assert draw(rows(), 99, seed=0) == rows()
