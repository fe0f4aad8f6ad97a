"""align.supervised against a loop over rows and positions."""

from __future__ import annotations

import pytest
import torch
from drawn import hard
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.align import IGNORE, supervised
from ranktuner.errors import InputError

Grid = list[list[int]]


def by_hand(labels: Grid, sequence: Grid | None = None, shifted: bool = False) -> list[tuple[int, int, int]]:
    """(row, position of the prediction, label) of every supervised token."""
    found = []
    for b, row in enumerate(labels):
        for t in range(len(row)):
            there = t if shifted else t + 1
            if there < len(row) and row[there] != IGNORE and (sequence is None or sequence[b][there] == sequence[b][t]):
                found.append((b, t, row[there]))
    return found


def listed(labels: Grid, **how: object) -> list[tuple[int, int, int]]:
    got = supervised(torch.tensor(labels), **how)  # type: ignore[arg-type]
    predicting = got.index % got.width
    return list(zip(got.row.tolist(), predicting.tolist(), got.target.tolist(), strict=True))


grids = st.integers(1, 4).flatmap(
    lambda b: st.integers(1, 7).flatmap(
        lambda t: st.lists(
            st.lists(st.sampled_from([IGNORE, 0, 1, 5, 36]), min_size=t, max_size=t), min_size=b, max_size=b
        )
    )
)


@given(grids, st.booleans())
@hard(200)
def test_the_shift(labels: Grid, shifted: bool) -> None:
    assert listed(labels, shifted=shifted) == by_hand(labels, shifted=shifted)


@given(grids, st.data())
@hard(200)
def test_sequences_packed_into_a_row(labels: Grid, data: st.DataObject) -> None:
    width = len(labels[0])
    positions, sequence = [], []
    for _ in labels:
        starts = [True, *data.draw(st.lists(st.booleans(), min_size=width - 1, max_size=width - 1))]
        place, number, row_p, row_s = 0, -1, [], []
        for begins in starts:
            place, number = (0, number + 1) if begins else (place + 1, number)
            row_p.append(place)
            row_s.append(number)
        positions.append(row_p)
        sequence.append(row_s)
    want = by_hand(labels, sequence)
    assert listed(labels, position_ids=torch.tensor(positions)) == want
    assert listed(labels, seq_idx=torch.tensor(sequence)) == want
    # sequence numbers: equal within a sequence, different between them and between rows
    for how in ({"position_ids": torch.tensor(positions)}, {"seq_idx": torch.tensor(sequence)}):
        got = supervised(torch.tensor(labels), **how)
        names = {}
        for (b, t, _), number in zip(want, got.seq.tolist(), strict=True):
            assert names.setdefault((b, sequence[b][t]), number) == number
        assert len(set(names.values())) == len(names)


def test_position_ids_of_one_row_serve_all() -> None:
    labels = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert listed(labels, position_ids=torch.tensor([[0, 1, 0, 1]])) == [(0, 0, 2), (0, 2, 4), (1, 0, 6), (1, 2, 8)]


def test_left_padding_hides_no_token_and_splits_no_sequence() -> None:
    labels = [[IGNORE, IGNORE, IGNORE, 4, 5]]
    for padding in ([0, 0, 0, 1, 2], [1, 1, 0, 1, 2]):
        assert listed(labels, position_ids=torch.tensor([padding])) == [(0, 2, 4), (0, 3, 5)]
        assert len(supervised(torch.tensor(labels), position_ids=torch.tensor([padding])).seq.unique()) == 1


def test_a_row_that_begins_in_the_middle_of_a_sequence_is_its_own() -> None:
    got = supervised(torch.tensor([[1, 2, 3], [4, 5, 6]]), position_ids=torch.tensor([[0, 1, 2], [3, 4, 5]]))
    assert got.target.tolist() == [2, 3, 5, 6]
    assert got.seq[0] == got.seq[1] != got.seq[2] == got.seq[3]


def test_rows_picks_the_predictions() -> None:
    labels = torch.tensor([[IGNORE, 3, IGNORE], [1, 1, 2]])
    hidden = torch.arange(12.0).reshape(2, 3, 2)
    got = supervised(labels)
    assert got.rows(hidden).tolist() == [[0, 1], [6, 7], [8, 9]]
    assert got.position.tolist() == [1, 1, 2]
    assert len(got) == 3


def test_nothing_to_learn_is_an_empty_answer() -> None:
    got = supervised(torch.full((2, 5), IGNORE))
    assert len(got) == 0
    assert got.target.dtype == torch.int64


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: supervised(torch.tensor([1, 2, 3])), ("(3,)", "batch")),
        (lambda: supervised(torch.tensor([[1, 2, 99]]), vocab_size=50), ("99", "row 0", "position 2", "50")),
        (lambda: supervised(torch.tensor([[1, 2], [3, -5]]), vocab_size=50), ("-5", "row 1", "position 1", "-100")),
        (lambda: supervised(torch.tensor([[1, 77]]), vocab_size=50, shifted=True), ("77", "row 0", "position 1")),
        (
            lambda: supervised(torch.tensor([[1, 2, 3]]), position_ids=torch.tensor([[0, 1]])),
            ("(1, 2)", "(1, 3)"),
        ),
        (lambda: supervised(torch.tensor([[1, 2, 3]]), seq_idx=torch.tensor([[0, 1]])), ("(1, 2)", "(1, 3)")),
    ],
)
def test_bad_labels_are_named(call: object, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert all(word in str(caught.value) for word in words), caught.value
