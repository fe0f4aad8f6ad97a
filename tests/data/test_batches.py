"""Membership of batches, dealing and flattening."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.data.batches import Shuffle, deal, flatten, pad
from ranktuner.data.encode import Encoder, Example
from ranktuner.data.presets import open_data, prior_for, without_calculator_marks
from ranktuner.errors import DataError, InputError


def example(length: int, first: int = 10, weighted: bool = False) -> Example:
    ids = np.arange(first, first + length, dtype=np.int32)
    weights = np.full(length, 0.5, np.float32) if weighted else None
    return Example(f"x:{first}", ids, np.arange(length) > 0, weights, False)


@given(n=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 9))
def test_every_shuffle_holds_every_sequence_once(n: int, size: int, seed: int) -> None:
    shuffle = Shuffle(n, size, seed)
    stream = [i for step in range(-(-3 * n // size)) for i in shuffle.members(step)]
    for epoch in range(3):
        assert Counter(stream[epoch * n : (epoch + 1) * n]) == Counter(range(n))
    assert Shuffle(n, size, seed).members(2) == shuffle.members(2)


def test_shuffles_differ_by_seed_and_epoch() -> None:
    a, b = Shuffle(100, 100, 0), Shuffle(100, 100, 1)
    assert a.members(0) != b.members(0)
    assert a.members(0) != a.members(1)
    # The stream does not depend on the batch: twice the size is the two batches one after another.
    assert Shuffle(100, 40, 0).members(0) == a.members(0)[:40]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.randoms())
def test_dealing_gives_every_sequence_to_one_micro_batch(p: int, parts: int, each: int, random: object) -> None:
    lengths = [random.randint(1, 50) for _ in range(p * parts * each)]
    dealt = deal(lengths, p, parts)
    assert sorted(i for process in dealt for part in process for i in part) == list(range(len(lengths)))
    assert {len(part) for process in dealt for part in process} == {each}
    # Like with like: no sequence of a later micro-batch is longer than one of an earlier.
    for part in range(parts - 1):
        here = min(lengths[i] for process in dealt for i in process[part])
        assert here >= max(lengths[i] for process in dealt for i in process[part + 1])


def test_batches_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InputError, match="10 sequences do not divide into 2 x 3 micro-batches of equal size"):
        deal([1] * 10, 2, 3)


def test_flattened_rows_keep_positions_labels_and_weights() -> None:
    arrays = flatten([example(3), example(2, 50, weighted=True)])
    assert arrays["input_ids"].tolist() == [[10, 11, 12, 50, 51]]
    assert arrays["labels"].tolist() == [[-100, 11, 12, -100, 51]]
    assert arrays["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert arrays["token_weights"].tolist() == [[1.0, 1.0, 1.0, 0.5, 0.5]]
    assert "token_weights" not in flatten([example(3)])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_hold_the_same_tokens(side: str) -> None:
    arrays = pad([example(3), example(2, 50, weighted=True)], 0, side, multiple=4)
    assert arrays["input_ids"].shape == (2, 4)
    real = arrays["attention_mask"] == 1
    flat = flatten([example(3), example(2, 50, weighted=True)])
    for name, values in flat.items():
        assert arrays[name][real].tolist() == values[0].tolist(), name
    assert (arrays["labels"][~real] == -100).all()


def test_gsm8k_needs_no_padding(shared_data: Path) -> None:
    rows = open_data([f"gsm8k:{shared_data / 'gsm8k' / 'train.jsonl'}"])
    assert len(rows) == 7473
    assert not any("<<" in row.messages[1]["content"] for row in rows)
    examples = list(Encoder(tiny.tokenizer()).encode(rows[i] for i in range(256)))
    (process,) = deal([len(e) for e in examples], 1, 32)
    positions = sum(flatten([examples[i] for i in part])["input_ids"].size for part in process)
    assert positions / sum(map(len, examples)) <= 1.03


def test_a_preset_out_of_reach_says_how_a_local_copy_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(DataError, match=r"openai/gsm8k: .*no network.*a local copy as gsm8k:FILE"):
        open_data(["gsm8k"])


def test_presets_choose_their_prior_and_say_so() -> None:
    assert prior_for(["gsm8k:x.jsonl"]) == ("prob", "the preset gsm8k chooses it")
    assert prior_for(["numina-cot"])[0] == "prob"
    assert [prior_for([name])[0] for name in ("alpaca", "evol-instruct-code", "my.jsonl")] == ["uniform"] * 3
    assert without_calculator_marks("48/2 = <<48/2=24>>24 clips") == "48/2 = 24 clips"
    with pytest.raises(InputError, match="a preset cannot be mixed"):
        open_data(["gsm8k", "my.jsonl"])
