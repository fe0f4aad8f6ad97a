"""Files become rows: shapes, ids, order; and every bad input by its message."""

from __future__ import annotations

import csv
import json
import pickle
import re
from pathlib import Path

import pytest

from ranktuner.data.rows import RowOptions, open_rows
from ranktuner.errors import DataError

GOOD = {
    "messages": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    "prompt": {"prompt": "a", "completion": "b"},
    "conversational": {
        "prompt": [{"role": "user", "content": "a"}],
        "completion": [{"role": "assistant", "content": "b"}],
    },
    "instruction": {"instruction": "a", "input": "", "output": "b"},
    "problem": {"problem": "a", "solution": "b", "answer": "c"},
    "question": {"question": "a", "answer": "b"},
}


def write(path: Path, *records: object) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("shape", GOOD)
def test_every_shape_becomes_the_same_conversation(tmp_path: Path, shape: str) -> None:
    (row,) = open_rows(write(tmp_path / "x.jsonl", GOOD[shape]))
    assert [(m["role"], m["content"]) for m in row.messages] == [("user", "a"), ("assistant", "b")]
    assert row.id == "x.jsonl:1"


def test_instruction_takes_its_input_along(tmp_path: Path) -> None:
    (row,) = open_rows(write(tmp_path / "x.jsonl", {"instruction": "Add.", "input": "1 2", "output": "3"}))
    assert row.messages[0]["content"] == "Add.\n\n1 2"


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    records = [{"question": f'q {i}, "quoted"\nline', "answer": f"a {i} é漢"} for i in range(7)]
    write(tmp_path / "x.jsonl", *records)
    (tmp_path / "x.json").write_text(json.dumps(records))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "x.parquet")
    with (tmp_path / "x.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(records)
    texts = {
        kind: [[m["content"] for m in row.messages] for row in open_rows(tmp_path / f"x.{kind}")]
        for kind in ("jsonl", "json", "csv", "parquet")
    }
    assert texts["jsonl"] == texts["json"] == texts["csv"] == texts["parquet"]
    # A CSV record is named by the line on which it starts, and these span two lines each.
    assert [row.id for row in open_rows(tmp_path / "x.csv")][:3] == ["x.csv:2", "x.csv:4", "x.csv:6"]


def test_large_tables_are_mapped_and_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    records = [{"messages": GOOD["messages"]["messages"]}, {"messages": GOOD["messages"]["messages"] * 2}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "x.parquet")
    small, large = (list(open_rows(tmp_path / "x.parquet", RowOptions(large_bytes=n))) for n in (2**20, 0))
    assert small == large
    assert len(small[1].messages) == 4


def test_rows_of_a_json_lines_file_are_read_in_any_order(tmp_path: Path) -> None:
    records = [{"question": f"q{i}" * (i + 1), "answer": "é" * (50 - i)} for i in range(40)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n" + "\n\n".join(json.dumps(r, ensure_ascii=False) for r in records), encoding="utf-8")
    rows = open_rows(path)
    assert len(rows) == 40
    for i in (39, 0, 17, 17, 3):
        assert rows[i].messages[0]["content"] == records[i]["question"]
        assert rows[i].id == f"x.jsonl:{2 + 2 * i}"  # blank lines keep their numbers
    copy = pickle.loads(pickle.dumps(rows))
    assert copy[5] == rows[5]


def test_a_folder_is_read_by_name_and_its_ids_are_paths_inside_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "b.jsonl", GOOD["question"])
    write(tmp_path / "a.jsonl", GOOD["question"], GOOD["question"])
    (tmp_path / "notes.txt").write_text("not data")
    assert [row.id for row in open_rows(tmp_path)] == ["a.jsonl:1", "a.jsonl:2", "sub/b.jsonl:1"]


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    one = open_rows(write(tmp_path / "one.jsonl", GOOD["question"])).fingerprint
    assert one == open_rows(write(tmp_path / "two.jsonl", GOOD["question"])).fingerprint
    assert one != open_rows(write(tmp_path / "one.jsonl", {"question": "a", "answer": "B"})).fingerprint


def test_weights_of_rows_and_named_fields(tmp_path: Path) -> None:
    rows = open_rows(
        write(tmp_path / "x.jsonl", {"in": "a", "out": "b", "weight": 0.5}, {"in": "a", "out": "b"}),
        RowOptions(prompt_field="in", response_field="out"),
    )
    assert [row.weight for row in rows] == [0.5, 1.0]
    (tmp_path / "x.csv").write_text("prompt,completion,weight\na,b,0.25\nc,d,\n")
    assert [row.weight for row in open_rows(tmp_path / "x.csv")] == [0.25, 1.0]


def test_empty_rows_are_counted_when_they_may_be_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", GOOD["question"], {"question": "a", "answer": " "}, GOOD["question"])
    rows = open_rows(path, RowOptions(skip_empty=True))
    assert (len(rows), rows.skipped) == (2, 1)
    assert [row.id for row in rows] == ["x.jsonl:1", "x.jsonl:3"]
    assert len(open_rows(path, RowOptions(limit=1))) == 1


BAD = {
    "broken line": ([GOOD["question"], '{"question": "a", "answer": "b"'], r"x\.jsonl:2: broken JSON at column 32 "),
    "not an object": ([GOOD["question"], "[1, 2]"], r"x\.jsonl:2: expected a JSON object .* found a list"),
    "no known shape": ([{"title": "a", "body": "b"}], r"x\.jsonl:1: the fields 'title', 'body' .*data\.prompt_field"),
    "missing field": ([GOOD["question"], {"question": "a"}], r"x\.jsonl:2: the field 'answer' is missing"),
    "null field": ([GOOD["question"], {"question": "a", "answer": None}], r"x\.jsonl:2: the field 'answer' is missing"),
    "mixed shapes": ([GOOD["question"], GOOD["messages"]], r"x\.jsonl:2: .*looks like messages: one file, one shape"),
    "empty field": ([GOOD["question"], {"question": "a", "answer": ""}], r"x\.jsonl:2: the field 'answer' is empty"),
    "not text": ([{"question": "a", "answer": 7}], r"x\.jsonl:1: the field 'answer' must be text, found a int"),
    "no rows": ([], r"no rows; expected at least one record"),
    "empty messages": ([{"messages": []}], r"x\.jsonl:1: 'messages' is an empty list"),
    "unknown role": ([{"messages": [{"role": "gpt", "content": "b"}]}], r"role 'gpt'; expected one of system"),
    "no assistant": ([{"messages": [{"role": "user", "content": "b"}]}], r"x\.jsonl:1: no assistant turn"),
    "bad weight": ([{**GOOD["question"], "weight": -1}], r"x\.jsonl:1: 'weight' is -1; expected a finite number"),
    "shifted labels": ([{"input_ids": [5, 6], "labels": [6, -100]}], r"labels\[0\] is 6, .* not shifted"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_say_where_and_what(tmp_path: Path, case: str) -> None:
    records, message = BAD[case]
    with pytest.raises(DataError, match=message):
        open_rows(write(tmp_path / "x.jsonl", *records))


def test_bad_files_say_the_way_out(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", GOOD["question"])
    with pytest.raises(DataError, match=r"no such file or folder \(there is 'train.jsonl' beside it\)"):
        open_rows(tmp_path / "trian.jsonl")
    (tmp_path / "x.txt").write_text("a")
    with pytest.raises(DataError, match=r"suffix '.txt' is not one of .*\.jsonl"):
        open_rows(tmp_path / "x.txt")
    (tmp_path / "lines.json").write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(DataError, match=r"lines\.json:2: broken JSON .* name it \.jsonl"):
        open_rows(tmp_path / "lines.json")
    (tmp_path / "x.csv").write_text("prompt,completion\na,b\nc,d,e\n")
    with pytest.raises(DataError, match=r"x\.csv:3: 1 more cells than the header's 2"):
        open_rows(tmp_path / "x.csv")
    (tmp_path / "latin.jsonl").write_bytes('{"question": "é", "answer": "b"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.jsonl:1: not UTF-8"):
        open_rows(tmp_path / "latin.jsonl")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match=r"bad\.parquet: not a readable parquet file"):
        open_rows(tmp_path / "bad.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the folder holds no file ending in"):
        open_rows(tmp_path / "empty")
    with pytest.raises(DataError, match=re.escape("would have to be read whole; write one object a line")):
        open_rows(write(tmp_path / "x.json", "[]"), RowOptions(large_bytes=1))


def test_public_sets_read_as_their_keepers_count_them(shared_data: Path) -> None:
    assert len(open_rows(shared_data / "gsm8k" / "train.jsonl")) == 7473
    alpaca = open_rows(shared_data / "alpaca" / "random_9k.json", RowOptions(skip_empty=True))
    assert (len(alpaca), alpaca.skipped) == (9225, 4)
    with pytest.raises(DataError, match=r"random_9k\.json:1462: the field 'output' is empty"):
        open_rows(shared_data / "alpaca" / "random_9k.json")
