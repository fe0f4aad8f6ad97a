"""Files of evalplus and human-eval: written, read back, graded alike, and refused with file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from code_cases import BY_INPUTS, BY_TESTS, PROMPT, RIGHT, function, sample

from ranktuner.errors import DataError, InputError
from ranktuner.evals import sandbox
from ranktuner.evals.evalplus_io import read_samples, write_samples
from ranktuner.evals.graders.python_code import grade

PROBLEMS = [BY_INPUTS, BY_TESTS]
ANSWERS = [
    RIGHT,
    RIGHT.strip(),
    f"Here:\n```python\n{function('return [n + by for n in numbers]')}```\nDone.",
    RIGHT + "\nassert False, 'an example'\n",
    "I do not know.",
    RIGHT.replace("+", "-"),
]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ours() -> list[Any]:
    """Samples of two problems, out of order."""
    return [sample(p, text, index=i) for i, text in reversed(list(enumerate(ANSWERS))) for p in PROBLEMS]


def test_each_sample_is_written_as_the_program_that_we_run(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    assert write_samples(path, PROBLEMS, ours()) == 12
    rows = lines(path)
    assert [row["task_id"] for row in rows] == ["own/inputs"] * 6 + ["own/tests"] * 6
    assert all(set(row) == {"task_id", "solution"} for row in rows)
    for right in rows[:4]:
        names: dict[str, Any] = {}
        exec(right["solution"], names)
        assert names["shifted"]([1], 2) == [3]
    assert rows[4]["solution"] == PROMPT + "I do not know."  # kept: n is n
    assert rows[0]["solution"] == PROMPT + RIGHT


def test_a_completion_stands_behind_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    write_samples(path, PROBLEMS, ours(), form="completion")
    rows = lines(path)
    assert all(set(row) == {"task_id", "completion"} for row in rows)
    assert rows[0]["completion"] == RIGHT
    for right in rows[:4]:
        names: dict[str, Any] = {}
        exec(PROMPT + right["completion"], names)  # as human-eval does
        assert names["shifted"]([1], 2) == [3]


@pytest.mark.parametrize("form", ["solution", "completion"])
def test_what_was_written_is_read_and_graded_to_the_same_verdicts(tmp_path: Path, form: Any) -> None:
    if isinstance(found := sandbox.bubblewrap_or_reason(), str):
        pytest.skip(found)
    path = tmp_path / "samples.jsonl"
    samples = sorted(ours(), key=lambda s: (s.problem, s.index))
    write_samples(path, PROBLEMS, samples, form=form)
    back = read_samples(path, PROBLEMS, "own")
    assert [(s.problem, s.index) for s in back] == [(s.problem, s.index) for s in samples]
    by_name = {p.id: p for p in PROBLEMS}
    before = [g.verdict for g in grade((by_name[s.problem], s) for s in samples)]
    after = [g.verdict for g in grade((by_name[s.problem], s) for s in back)]
    assert before == ["correct"] * 4 + ["unparsed", "wrong"] + ["correct"] * 4 + ["unparsed", "wrong"]
    assert after == ["correct"] * 4 + ["wrong", "wrong"] + ["correct"] * 4 + ["wrong", "wrong"]  # run as it stands
    again = tmp_path / "again.jsonl"
    write_samples(
        again, PROBLEMS, [s for s, verdict in zip(back, after, strict=True) if verdict == "correct"], form=form
    )
    for first, second in zip(
        [r for r in lines(path) if "know" not in r[form] and "- by" not in r[form]], lines(again), strict=True
    ):
        names: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        exec((PROMPT if form == "completion" else "") + first[form], names[0])
        exec((PROMPT if form == "completion" else "") + second[form], names[1])
        assert names[0]["shifted"]([4], 5) == names[1]["shifted"]([4], 5) == [9]


def test_files_of_others_are_read(tmp_path: Path) -> None:
    """Mixed forms, other fields, blank lines, samples of a task apart, gzip, a subset of the problems."""
    rows = [
        {"task_id": "own/tests", "completion": RIGHT, "model": "m"},
        {"task_id": "own/inputs", "solution": PROMPT + RIGHT, "_identifier": "x"},
        {"task_id": "own/tests", "completion": "    return 0\n"},
    ]
    path = tmp_path / "theirs.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(json.dumps(row) for row in rows).encode()))
    samples = read_samples(path, PROBLEMS, "own")
    assert [(s.problem, s.index, s.text) for s in samples] == [
        ("own/tests", 0, PROMPT + RIGHT),
        ("own/inputs", 0, PROMPT + RIGHT),
        ("own/tests", 1, PROMPT + "    return 0\n"),
    ]  # fmt: skip
    assert samples[0].decoding == {"form": "program"}
    assert samples[0].model == "theirs.jsonl.gz"


BAD = [
    (
        {"task_id": "own/input", "solution": ""},
        "task_id is 'own/input', which is no problem of own; did you mean 'own/inputs'",
    ),
    ({"solution": ""}, "task_id is None, which is no problem of own; the line has solution"),
    ({"task_id": "own/tests"}, "neither 'completion' nor 'solution'; the line has task_id"),
    (
        {"task_id": "own/tests", "solution": ["a"]},
        "solution is a list; expected a string, and one line for each sample",
    ),
    ("[]", "is not a JSON object"),
    ("{", "not JSON: "),
]


@pytest.mark.parametrize(("row", "message"), BAD)
def test_a_bad_line_is_named(tmp_path: Path, row: Any, message: str) -> None:
    path = tmp_path / "theirs.jsonl"
    good = json.dumps({"task_id": "own/tests", "completion": RIGHT})
    path.write_text(f"{good}\n{row if isinstance(row, str) else json.dumps(row)}\n")
    with pytest.raises(DataError, match=rf"theirs\.jsonl:2: .*{message}"):
        read_samples(path, PROBLEMS, "own")


def test_an_empty_file_and_missing_problems_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text("\n")
    with pytest.raises(DataError, match=r"theirs\.jsonl: no samples; expected lines such as"):
        read_samples(path, PROBLEMS, "own")
    some = [sample(BY_INPUTS, RIGHT)]
    with pytest.raises(InputError, match=r"1 of 2 problems have no sample \(own/tests .*pass partial=True"):
        write_samples(path, PROBLEMS, some)
    assert write_samples(path, PROBLEMS, some, partial=True) == 1
    with pytest.raises(InputError, match=r"'own/tests', which is not in the task; .*own/inputs"):
        write_samples(path, [BY_INPUTS], [sample(BY_TESTS, RIGHT)])


def test_an_answer_that_the_parser_does_not_survive_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranktuner.evals.evalplus_io.READING_S", 2.0)
    slow = "```\n" * 20_000 + "(" * 300_000
    samples = [sample(BY_INPUTS, text, index=i) for i, text in enumerate([RIGHT, slow, RIGHT])]
    path = tmp_path / "samples.jsonl"
    assert write_samples(path, [BY_INPUTS], samples) == 3
    rows = lines(path)
    assert rows[0] == rows[2] == {"task_id": "own/inputs", "solution": PROMPT + RIGHT}
    assert rows[1]["solution"].startswith(PROMPT)
