"""Sizes, memory and the plan: what is decided before weights are loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.data.examples import Held, Streamed, open_examples, pack
from ranktuner.errors import DataError, InputError, UnsupportedError
from ranktuner.train.config import read_config
from ranktuner.train.memory import Storage, estimate, model_shape
from ranktuner.train.plan import World, make_encoder, prepare
from ranktuner.train.sizes import batch_size, micro_size, save_interval, step_count


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    records = [{"question": f"How many clips {i}?", "answer": "forty-two, " * (i % 5 + 1)} for i in range(120)]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def test_small_data_shrinks_the_batch_and_says_so() -> None:
    size, note = batch_size(7473, 1.0, 256, False, 50, 1)
    assert size == 128
    assert "128, shrunk from 256: 7,473 sequences would give 30 steps, fewer than 50" in note
    assert batch_size(7473, 1.0, 256, True, 50, 1) == (256, "")
    assert batch_size(100_000, 1.0, 256, False, 50, 1) == (256, "")
    assert batch_size(3, 1.0, 256, False, 50, 1)[0] == 1
    assert batch_size(1000, 1.0, 256, False, 50, 3)[0] % 3 == 0
    with pytest.raises(InputError, match="global batch of 256 does not divide among 3 processes; choose 255 or 258"):
        batch_size(10**6, 1.0, 256, False, 50, 3)


@given(n=st.integers(1, 10**5), epochs=st.floats(0.1, 5), size=st.integers(1, 512))
def test_steps_show_every_sequence_as_often_as_asked(n: int, epochs: float, size: int) -> None:
    steps = step_count(n, epochs, size, None)
    assert steps * size >= n * epochs - 1e-6 * n
    assert (steps - 1) * size < n * epochs or steps == 1


def test_steps_and_saves() -> None:
    assert step_count(100, 1.0, 10, 3) == 3
    assert step_count(100, 1.0, 10, 30) == 30
    assert step_count(100, 0.3, 10, None) == 3  # not 4 by a rounding error
    assert [save_interval(n, None) for n in (5, 100, 1000)] == [10, 10, 100]
    assert save_interval(100, 7) == 7


def test_micro_batches_fit_the_longest_sequences() -> None:
    assert micro_size(64, 1, None, [100] * 50, 1000) == 8
    assert micro_size(64, 2, None, [100] * 50, 10**6) == 32
    assert micro_size(64, 1, None, [10] * 90 + [1000] * 10, 1000) == 1
    assert micro_size(64, 1, 4, [100], 1) == 4
    with pytest.raises(InputError, match=r"micro-batch 3 does not divide the 32 sequences of one process .* 2, 4"):
        micro_size(64, 2, 3, [100], 1000)


def test_parameters_are_counted_without_weights() -> None:
    from transformers import AutoConfig

    model = tiny.model()
    config = AutoConfig.for_model(**model.config.to_dict())
    shape = model_shape(config)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    frozen = model_shape(config, lora_rank=4)
    assert frozen.trainable == 4 * sum(
        m.in_features + m.out_features
        for n, m in model.named_modules()
        if type(m).__name__ == "Linear" and n != "lm_head"
    )
    whole, adapters = (estimate(s, 100, Storage(), False).total for s in (shape, frozen))
    assert adapters < whole
    assert estimate(shape, 100, Storage(), True).total < whole
    # four bytes of weight and twelve of gradient and moments for each parameter
    assert estimate(shape, 0, Storage(), False).total == 16 * shape.parameters


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80))
def test_packing_keeps_every_sequence_and_overfills_nothing(lengths: list[int]) -> None:
    bins = pack(lengths, 50)
    assert sorted(i for b in bins for i in b) == list(range(len(lengths)))
    assert all(sum(min(lengths[i], 50) for i in b) <= 50 for b in bins)
    # no two bins could share one: the filling is not wasteful
    loads = sorted(sum(min(lengths[i], 50) for i in b) for b in bins)
    assert len(loads) < 2 or loads[0] + loads[1] > 50


def test_the_plan_counts_what_the_encoder_gives(model: Path, rows: Path) -> None:
    config = read_config(flags={"model": str(model), "data": str(rows), "max_length": 40})
    prepared = prepare(config)
    plan = prepared.plan
    examples = [e for e in make_encoder(config.data, prepared.tokenizer).encode(_rows(rows)) if e.supervised]
    assert plan.counts.examples == len(examples) <= 120
    assert plan.counts.supervised == sum(e.supervised for e in examples)
    assert plan.counts.truncated > 0
    assert plan.method == "ranktuner(prior=uniform)"
    assert (plan.size, plan.steps) == (2, 60)
    assert plan.size == plan.micro * plan.accumulate
    assert any("sequences are cut at 40 tokens" in note for note in plan.notes)


def test_mathematics_learnt_without_the_words_it_is_asked_with_is_said(model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "train.jsonl"
    rows.write_text('{"question": "What is 2+3?", "answer": "5 #### 5"}\n' * 4)

    def said(source: str, *sets: str) -> bool:
        plan = prepare(read_config(flags={"model": str(model), "data": source}, sets=sets)).plan
        return any("--set data.prompt_suffix=math adds them" in note for note in plan.notes)

    assert said(f"gsm8k:{rows}")
    assert not said(f"gsm8k:{rows}", "data.prompt_suffix=math")
    assert not said(str(rows))


def test_steps_that_cut_the_epochs_short_are_said(model: Path, rows: Path) -> None:
    config = read_config(flags={"model": str(model), "data": str(rows), "epochs": 3, "max_steps": 6, "global_batch": 4})
    plan = prepare(config).plan
    assert (plan.steps, plan.epochs) == (6, 0.2)
    assert "max_steps=6 ends the run after 0.20 epochs, whatever epochs=3 says" in plan.notes


def test_streamed_rows_give_the_examples_that_held_ones_do(model: Path, rows: Path) -> None:
    config = read_config(flags={"model": str(model), "data": str(rows)})
    encoder = make_encoder(config.data, prepare(config).tokenizer)
    held, streamed = (open_examples(_rows(rows), encoder, mode) for mode in ("off", "on"))
    assert isinstance(held, Held)
    assert isinstance(streamed, Streamed)
    for a, b in zip(held.get([5, 0, 119]), streamed.get([5, 0, 119]), strict=True):
        assert a.row_id == b.row_id
        assert a.input_ids.tolist() == b.input_ids.tolist()
    assert streamed.counts.estimated
    assert streamed.counts.supervised == pytest.approx(held.counts.supervised, rel=0.1)


def test_the_prior_follows_the_data_and_a_named_one_wins(model: Path, rows: Path) -> None:
    for data, method, expected in (
        (str(rows), None, "ranktuner(prior=uniform)"),
        (f"gsm8k:{rows}", None, "ranktuner(prior=prob)"),
        (f"gsm8k:{rows}", "ranktuner(k=0.5)", "ranktuner(prior=prob, k=0.5)"),
        (f"gsm8k:{rows}", "ranktuner(prior=uniform)", "ranktuner(prior=uniform)"),
        (str(rows), "dft", "dft"),
    ):
        config = read_config(flags={"model": str(model), "data": data, "method": method})
        assert prepare(config).plan.method == expected


def test_plans_that_cannot_be(model: Path, rows: Path, tmp_path: Path) -> None:
    def plan(**flags: object) -> None:
        prepare(read_config(flags={"model": str(model), "data": str(rows), **flags}))

    with pytest.raises(InputError, match=r"unknown method 'rankturner'; did you mean 'ranktuner'"):
        plan(method="rankturner")
    with pytest.raises(UnsupportedError, match="needs all logits"):
        plan(method="overtone(mode=mix)")
    with pytest.raises(InputError, match="there is no such folder; give a model folder"):
        plan(model=str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no config\.json in this folder"):
        plan(model=str(tmp_path / "empty"))
    with pytest.raises(DataError, match=r"none of the 120 rows read keeps a supervised token .* raise --max-length"):
        plan(max_length=5)
    with pytest.raises(InputError, match="does not divide among 2 processes"):
        prepare(
            read_config(flags={"model": str(model), "data": str(rows), "global_batch": 3}), World(processes=2, rank=0)
        )


def _rows(path: Path) -> object:
    from ranktuner.data.rows import open_rows

    return open_rows(path)
