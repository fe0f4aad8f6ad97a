"""The token table: text that joins, a file that is whole or absent, numbers against the dense oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle
import pytest
import tables
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranktuner.data.encode import Encoder
from ranktuner.data.shapes import Row
from ranktuner.diagnostics import table as module
from ranktuner.diagnostics.collect import score_examples, write_table
from ranktuner.diagnostics.pieces import Pieces
from ranktuner.diagnostics.summaries import weights_of
from ranktuner.diagnostics.table import TableWriter, read_meta, read_table
from ranktuner.errors import DataError
from ranktuner.head import attach

AWKWARD = "Año 漢字 🤷🏽‍♀️ שלום \x07 <b>&amp;</b> \u202e rtl é\ufffd."


def rows(*answers: str) -> list[Row]:
    return [
        Row(f"f:{i}", ({"role": "user", "content": f"Question {i}?"}, {"role": "assistant", "content": answer}))
        for i, answer in enumerate(answers)
    ]


def encoded(*answers: str, max_length: int | None = 256) -> list[object]:
    return list(Encoder(tiny.tokenizer(), max_length).encode(rows(*answers)))


# --- pieces ----------------------------------------------------------------------------------------------------------


@given(st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_pieces_join_to_the_text(text: str) -> None:
    tokenizer = tiny.tokenizer()
    ids = tokenizer(text, add_special_tokens=False).input_ids
    pieces = Pieces(tokenizer)(ids)
    assert "".join(pieces) == text
    assert len(pieces) == len(ids)


def test_the_token_that_completes_a_character_carries_it() -> None:
    tokenizer = tiny.tokenizer()
    ids = tokenizer("a漢b", add_special_tokens=False).input_ids
    assert len(ids) == 5, "the tiny tokenizer knows no CJK: three byte tokens"
    assert Pieces(tokenizer)(ids) == ["a", "", "", "漢", "b"]


class Words:
    """A tokenizer that puts the space by context, as sentencepiece does: a first word has none."""

    def decode(self, ids: list[int], **_: object) -> str:
        return " ".join(("the", "cat", "sat")[i] for i in ids)


def test_spaces_by_context_join_too() -> None:
    assert Pieces(Words())([0, 1, 2]) == ["the", " cat", " sat"]


# --- the pass --------------------------------------------------------------------------------------------------------


def test_numbers_agree_with_the_oracle(tmp_path: Path) -> None:
    model, tokenizer = tiny.model(), tiny.tokenizer()
    examples = encoded("The answer is 5.", "72 clips, " + AWKWARD)
    path = tmp_path / "t.parquet"
    counts = write_table(path, model, tokenizer, examples, methods=["dft", "ranktuner", "deft"])
    table = read_table(path)
    assert counts["tokens"] == len(table) == sum(e.supervised for e in examples)
    at = 0
    for number, example in enumerate(examples):
        with torch.no_grad():
            logits = model(torch.from_numpy(example.input_ids.astype(np.int64))[None]).logits[0]
        for position in np.flatnonzero(example.learnt):
            label, row = int(example.input_ids[position]), logits[position - 1].tolist()
            judge = oracle.token(row, label)
            beyond = oracle.expected_rank_minus_1(row)
            assert (table.row[at], table.position[at], table.token_id[at]) == (number, position, label)
            assert table.nll[at] == pytest.approx(judge.nll, rel=2e-6, abs=2e-6)
            assert (table.rank[at], table.is_top[at]) == (judge.rank, judge.is_top)
            assert table.entropy_bits[at] == pytest.approx(judge.entropy_bits, rel=5e-6)
            assert table.p_max[at] == pytest.approx(judge.p_max, rel=5e-6)
            assert table.expected_rank[at] - 1 == pytest.approx(beyond, rel=1e-6)
            assert table.s[at] == pytest.approx(float(oracle.rank_bound(judge.entropy_bits, judge.p_max)), rel=5e-6)
            inverse = float(1 / np.log2(1 + judge.rank) - 1 / np.log2(2 + beyond))
            assert table.indicator[at] == pytest.approx(2**inverse, rel=1e-6)
            assert table.k[at] == pytest.approx(np.log2(1 + max(judge.rank, table.s[at])) ** -2, rel=1e-6)
            assert table.weights["dft"][at] == pytest.approx(np.exp(-judge.nll), rel=1e-5)
            at += 1
    assert at == len(table)


def test_text_and_offsets_rebuild_the_row(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", tiny.model(), tiny.tokenizer(), encoded("The answer.", AWKWARD))
    table = read_table(tmp_path / "t.parquet")
    texts = []
    for _, a, b in table.bounds_of_rows():
        text = table.row_text(a, b)
        texts.append(text)
        for i in range(a, b):
            assert text[table.start[i] : table.end[i]] == table.text[i]
    assert texts == ["The answer.<|im_end|>", AWKWARD + "<|im_end|>"]
    assert table.row_ids == ("f:0", "f:1")


def test_several_turns_are_decoded_each_by_itself(tmp_path: Path) -> None:
    turns = [("user", "Hi"), ("assistant", "漢"), ("user", "And?"), ("assistant", "字 end")]
    row = Row("f:1", tuple({"role": role, "content": text} for role, text in turns))
    examples = list(Encoder(tiny.tokenizer()).encode([row]))
    write_table(tmp_path / "t.parquet", tiny.model(), tiny.tokenizer(), examples)
    table = read_table(tmp_path / "t.parquet")
    assert table.row_text(0, len(table)) == "漢<|im_end|>字 end<|im_end|>"


@pytest.mark.parametrize("batch", [2, 3, 16])
def test_rows_scored_together_give_the_same(batch: int) -> None:
    model, examples = tiny.model(), encoded("The answer is 5.", "72", AWKWARD, "clips in May", "a")
    alone = list(score_examples(model, examples, ["sum_p2"]))
    for a, b in zip(alone, score_examples(model, examples, ["sum_p2"], batch=batch), strict=True):
        assert a.example is b.example
        np.testing.assert_array_equal(a.position, b.position)
        for name in ("nll", "entropy_bits", "p_max", "sum_p2", "expected_rank"):
            torch.testing.assert_close(getattr(a.signals, name), getattr(b.signals, name), rtol=1e-5, atol=1e-5)
        assert (a.signals.rank - b.signals.rank).abs().max() <= 1


def test_an_attached_model_is_scored_and_stays_attached() -> None:
    model, examples = tiny.model(), encoded("The answer is 5.")
    (plain,) = score_examples(model, examples)
    with attach(model, "dft") as attachment:
        (scored,) = score_examples(model, examples)
        ids = torch.tensor([[1, 2, 3]])
        model(input_ids=ids, labels=ids, num_items_in_batch=2)
        assert attachment.last is not None
        assert len(attachment.last.signals) == 2
    torch.testing.assert_close(plain.signals.nll, scored.signals.nll)
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 404)


def test_the_model_is_left_in_its_mode() -> None:
    model = tiny.model().train()
    list(score_examples(model, encoded("The answer.")))
    assert model.training


def test_rows_cut_before_their_answer_are_counted(tmp_path: Path) -> None:
    examples = encoded("short", "a longer answer with many words and more words", max_length=30)
    assert [e.supervised > 0 for e in examples] == [True, True]
    examples += encoded("all of it is cut", max_length=8)
    counts = write_table(tmp_path / "t.parquet", tiny.model(), tiny.tokenizer(), examples)
    assert counts["dropped"] == 1
    assert counts["rows"] == 2
    assert counts["truncated"] == sum(e.truncated for e in examples)
    assert read_meta(tmp_path / "t.parquet")["dropped"] == 1


def test_nothing_supervised_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of the 1 rows has a supervised token: .*larger --max-length"):
        write_table(tmp_path / "t.parquet", tiny.model(), tiny.tokenizer(), encoded("cut", max_length=6))
    assert list(tmp_path.iterdir()) == []


# --- the file --------------------------------------------------------------------------------------------------------


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def examples() -> object:
        yield from encoded("The answer.")
        raise RuntimeError("power off")

    with pytest.raises(RuntimeError, match="power off"):
        write_table(tmp_path / "t.parquet", tiny.model(), tiny.tokenizer(), examples())
    assert list(tmp_path.iterdir()) == []


def add(writer: TableWriter, table: module.TokenTable) -> None:
    for number, a, b in table.bounds_of_rows():
        columns = {name: getattr(table, name)[a:b] for name in module.COLUMNS}
        writer.add(table.row_ids[number], columns, {m: w[a:b] for m, w in table.weights.items()})


@pytest.mark.parametrize("group", [1, 7, 1000])
def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    monkeypatch.setattr(module, "ROW_GROUP", group)
    made = tables.table(
        [["a", "漢", ""], ["b"] * 9, ["c\x00d"]], entropy_bits=np.arange(13), weights={"dft": np.arange(13)}
    )
    with TableWriter(tmp_path / "t.parquet", ["dft"], {"model": "m", "vocab_size": 400}) as writer:
        add(writer, made)
        writer.finish(rows=3)
    read = read_table(tmp_path / "t.parquet")
    for name in module.COLUMNS:
        np.testing.assert_array_equal(getattr(read, name), getattr(made, name), err_msg=name)
    np.testing.assert_array_equal(read.weights["dft"], made.weights["dft"])
    assert read.row_ids == made.row_ids
    assert (read.meta["rows"], read.meta["tokens"], read.meta["methods"]) == (3, 13, ["dft"])


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "t.parquet", [], {}) as writer:
        add(writer, tables.table([["a", "b"]]))
        writer.finish()
    read = read_table(tmp_path / "t.parquet", ["nll"])
    assert len(read) == 2
    assert len(read.text) == 0
    with pytest.raises(DataError, match=r"has no column 'entropy'; did you mean 'entropy_bits'"):
        read_table(tmp_path / "t.parquet", ["entropy"])


def test_files_that_are_no_table_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    with pytest.raises(DataError, match="no such token table; make one with: ranktuner diagnose table"):
        read_table(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="not a token table"):
        read_table(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DataError, match="a parquet file, but no token table"):
        read_table(path)
    old = json.dumps({"schema": 0, "command": "ranktuner diagnose table --model m"})
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({"ranktuner": old}), path)
    with pytest.raises(
        DataError, match=r"schema 0, this version reads 1: make it again with 'ranktuner diagnose table"
    ):
        read_table(path)


def test_a_million_tokens_fit_in_a_known_memory(tmp_path: Path) -> None:
    """Written in row groups, read into plain arrays: 110 bytes a token for everything, 12 for two columns."""
    one = tables.table([[f" w{i % 500}" for i in range(5000)]], weights={"dft": np.ones(5000)})
    with TableWriter(tmp_path / "t.parquet", ["dft"], {}) as writer:
        for number in range(200):
            columns = {name: getattr(one, name) for name in module.COLUMNS} | {"row": np.full(5000, number)}
            writer.add(f"r{number}", columns, one.weights)
            assert sum(len(t) for t in writer._held) < module.ROW_GROUP
        writer.finish()
    table = read_table(tmp_path / "t.parquet")
    assert len(table) == 1_000_000
    arrays = [getattr(table, name) for name in module.COLUMNS] + list(table.weights.values())
    assert sum(a.nbytes for a in arrays) < 110e6
    assert len({id(text) for text in table.text[::97]}) <= 500, "equal texts share one string"


# --- weights after the fact ------------------------------------------------------------------------------------------


def test_weights_are_the_same_stored_and_worked_out(tmp_path: Path) -> None:
    examples = encoded("The answer is 5.", AWKWARD)
    write_table(tmp_path / "t.parquet", tiny.model(), tiny.tokenizer(), examples, methods=["ranktuner"])
    table = read_table(tmp_path / "t.parquet")
    without = replace(table, weights={})
    np.testing.assert_allclose(weights_of(without, "ranktuner"), weights_of(table, "ranktuner"), rtol=1e-6)


def test_talr_takes_its_tau_from_the_whole_table() -> None:
    # sequence means of the nll: ln 2 and ln 8; tau is their mean, 2 ln 2
    table = tables.table([["a", "b"], ["c"]], p=[0.5, 0.5, 0.125])
    tau = 2 * np.log(2)
    np.testing.assert_allclose(weights_of(table, "talr"), np.array([0.5, 0.5, 0.125]) ** (1 / tau), rtol=1e-6)


def test_a_method_that_reads_more_than_the_table_keeps_names_the_way_out() -> None:
    with pytest.raises(DataError, match=r"method 'deft' reads sum_p2, .* make the table with --method 'deft'"):
        weights_of(tables.table([["a"]]), "deft")
