"""Generated word problems: right answers by a reader of the English text, distinct, and never in two splits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from ranktuner.data.arithmetic import WordProblem, draw, write
from ranktuner.data.foreign import sentences
from ranktuner.data.presets import open_data
from ranktuner.errors import DataError, InputError

N = r"(\d+)"
OPENINGS = [
    (rf"\w+ has {N} \w+, and \w+ has twice as many\. \w+ gives all of them to \w+\.", lambda a: a + 2 * a),
    (rf"\w+ has {N} \w+, and \w+ has {N} times as many\. \w+ gives all of them to \w+\.", lambda a, b: a + b * a),
    (rf"\w+ has {N} \w+\. \w+ has {N} more than \w+ and brings all of them to \w+\.", lambda a, b: a + a + b),
    (rf"\w+ has {N} \w+\. \w+ has {N} fewer than \w+ and brings all of them to \w+\.", lambda a, b: a + a - b),
    (rf"\w+ fills {N} \w+ with {N} \w+ each\.", lambda a, b: a * b),
    (rf"\w+ collects {N} \w+ on \w+day and {N} on \w+day\.", lambda a, b: a + b),
    (rf"\w+ sorts {N} \w+ an hour, works for {N} hours and keeps them all\.", lambda a, b: a * b),
    (rf"\w+ has {N} \w+\.", lambda a: a),
]
CHANGES = [
    (rf"Then \w+ buys {N} more\.|Later \w+ buys another {N}\.", lambda v, k: v + k),
    (rf"\w+ adds {N} as a present\.|A neighbour of \w+ brings {N} as a gift\.", lambda v, k: v + k),
    (rf"\w+ gives {N} of them to \w+\.|Of these, \w+ hands {N} to \w+\.", lambda v, k: v - k),
    (rf"On the way home {N} get lost\.|Unluckily, {N} are damaged and thrown away\.", lambda v, k: v - k),
    (r"\w+ sells half of what is there\.|Then \w+ donates half of all\.", lambda v: v / 2),
    (r"Then \w+ doubles the number\.|An aunt of \w+ doubles it\.", lambda v: v * 2),
    (r"How many \w+ does \w+ have now\?|How many \w+ are left with \w+\?", lambda v: v),
    (rf"Each one is sold for {N} coins\. How many coins does \w+ get\?", lambda v, k: v * k),
    (rf"\w+ shares them equally among {N} friends\. How many \w+ does each friend get\?", lambda v, k: v / k),
    (rf"\w+ has {N} \w+\. How many more \w+ does \w+ have than \w+\?", lambda v, k: v - k),
    (rf"\w+ wants {N} \w+ in all\. How many are still missing\?", lambda v, k: k - v),
]


def read(text: str) -> Fraction:
    """Work out the answer from the English text alone; a sentence nobody foresaw is an error."""
    value, rules = None, OPENINGS
    while text:
        for pattern, rule in rules:
            if found := re.match(pattern, text):
                numbers = [Fraction(n) for n in found.groups() if n]
                value = rule(*numbers) if value is None else rule(value, *numbers)
                text, rules = text[found.end() :].strip(), CHANGES
                break
        else:
            raise AssertionError(f"no rule reads {text!r}")
    assert value is not None
    return value


PROBLEMS = [
    *draw("train", 1500, seed=3, steps=(1, 2, 3, 4, 5)),
    *draw("test", 500, seed=3, steps=(1, 2, 3, 4, 5), largest=50),
]


def test_answers_are_those_of_a_reader_of_the_text() -> None:
    wrong = [p for p in PROBLEMS if read(p.problem) != int(p.answer)]
    assert not wrong, wrong[0]


def test_solutions_hold_step_by_step_and_end_in_the_boxed_answer() -> None:
    for p in PROBLEMS:
        equations = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", p.solution)
        assert len(equations) == p.steps, p
        for a, sign, b, result in equations:
            assert eval(f"{a} {sign} {b}") == int(result), p
        assert p.solution.endswith(f"The answer is \\boxed{{{p.answer}}}.")
        assert not equations or equations[-1][3] == p.answer
        assert eval(p.expression) == int(p.answer)
        assert len(re.findall(r"[-+*/]", p.expression)) == p.steps


def test_numbers_stay_small_and_plural() -> None:
    for p in draw("train", 400, steps=(2, 4), largest=12):
        assert all(2 <= int(n) <= 120 for n in re.findall(r"\d+", p.solution)), p


def normalised(p: WordProblem) -> tuple[frozenset[int], str]:
    """Content without words: the numbers of the text (a half and a double are 2), and the answer."""
    numbers = {int(n) for n in re.findall(r"\d+", p.problem)}
    return frozenset(numbers | {2} if re.search(r"half of|doubles|twice", p.problem) else numbers), p.answer


def test_splits_never_share_content_whatever_the_seeds() -> None:
    contents = {
        split: {normalised(p) for seed in (0, 1) for p in draw(split, count, seed=seed)}
        for split, count in (("train", 3000), ("test", 1000), ("held_out", 500))
    }
    assert contents["train"].isdisjoint(contents["test"])
    assert contents["train"].isdisjoint(contents["held_out"])
    assert contents["test"].isdisjoint(contents["held_out"])


def test_problems_of_a_split_are_distinct_and_the_seed_draws_them() -> None:
    many = draw("train", 4000)
    assert len({normalised(p) for p in many}) == len({p.problem for p in many}) == len({p.id for p in many}) == 4000
    assert many[:50] == draw("train", 50)
    assert many[:50] != draw("train", 50, seed=1)


def test_templates_and_names_vary() -> None:
    many = draw("train", 600)
    starts = Counter(p.problem.split()[0] for p in many)
    assert len(starts) > 20
    assert max(starts.values()) < 60
    for pattern, _ in OPENINGS + CHANGES:
        assert any(re.search(pattern, p.problem) for p in many), pattern
    assert Counter(p.steps for p in many).keys() == {2, 3}


def test_the_same_problems_on_every_machine() -> None:
    """Pinned by hand: a change of the drawing would silently make stored results stale."""
    (first,) = draw("test", 1, seed=7)
    assert read(first.problem) == int(first.answer)
    assert first == PINNED


PINNED = WordProblem(
    id="test-0",
    problem="Lena has 5 stickers, and Ada has 4 times as many. Ada gives all of them to Lena. Lena shares them equally "
    "among 5 friends. How many stickers does each friend get?",
    solution="Ada has 5 * 4 = 20 stickers.\nTogether that makes 5 + 20 = 25 stickers.\nEach friend gets 25 / 5 = 5 "
    "stickers.\nThe answer is \\boxed{5}.",
    answer="5",
    expression="(5 + (5 * 4)) / 5",
    steps=3,
)


def test_files_are_read_as_data_and_as_a_task(tmp_path: Path) -> None:
    from ranktuner.evals.tasks.own import read_toml

    write(tmp_path, train=20, test=8, held_out=5, seed=1)
    rows = list(open_data([str(tmp_path / "train.jsonl")]))
    assert len(rows) == 20
    assert "boxed" in rows[0].messages[-1]["content"]
    assert len(list(open_data([str(tmp_path / "held_out.jsonl")]))) == 5
    task = read_toml(tmp_path / "problems.toml")
    lines = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    problem = task.read(lines[0], "0")
    assert (task.expected, problem.id, problem.gold) == (8, "test-0", lines[0]["answer"])
    assert problem.question == lines[0]["problem"]


def test_files_with_the_same_content_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, train=10, test=5)
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert before.keys() == {"train.jsonl", "test.jsonl", "foreign.jsonl", "problems.toml"}
    write(tmp_path, train=10, test=5)
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before


def test_foreign_sentences_are_distinct_sentences_without_numbers(tmp_path: Path) -> None:
    from ranktuner.diagnostics.planting import sentences_of

    found = sentences(500, seed=2)
    assert len(set(found)) == 500
    assert all(re.fullmatch(r"[A-Z][A-Za-z' ,-]+\.", s) for s in found)
    write(tmp_path, train=5, test=5)
    rows = list(open_data([str(tmp_path / "foreign.jsonl")]))
    assert len(sentences_of(rows, 400)) == 400


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"split": "dev"}, "split 'dev': expected one of train, test, held_out"),
        ({"count": 0}, "0 train problems: expected at least 1"),
        ({"steps": (3, 7)}, r"steps \[3, 7\]: expected numbers of steps from 1 to 6"),
        ({"largest": 3}, "largest 3: expected a largest number from 10 to 1000"),
        ({"count": 50_000, "steps": (1,), "largest": 10}, "50,000 different train problems .* there are about"),
    ],
)
def test_what_cannot_be_drawn_is_said(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(**{"split": "train", "count": 5, **wrong})  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="the problems could not be written"):
        write(tmp_path / "file" / "below")


def test_no_torch_is_imported() -> None:
    code = "import sys, ranktuner.data.arithmetic; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
