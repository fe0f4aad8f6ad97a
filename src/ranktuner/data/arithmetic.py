"""Generated arithmetic word problems with worked solutions: data for the demo and for trials, without a download.

    problems = draw("train", 128, seed=0)
    write(folder, train=128, test=64)     # train.jsonl, test.jsonl, foreign.jsonl and problems.toml, an own task

Which split a problem belongs to is a hash of what is in it - its numbers and its answer, not its words - so problems
of different splits never share their content, whatever the seeds and sizes.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ranktuner.data.foreign import sentences
from ranktuner.data.stories import Story, tell
from ranktuner.errors import DataError, InputError

SPLITS: dict[str, range] = {"train": range(5), "test": range(5, 7), "held_out": range(7, 8)}
"""Split -> which eighths of all contents are its own."""
FOREIGN = 400
TRIES = 400
"""A split counts as used up after so many draws in a row of something that was there already."""


@dataclass(frozen=True)
class WordProblem:
    """One problem, as it stands in a line of JSON."""

    id: str
    problem: str
    solution: str
    """Worked out step by step, with the answer in `\\boxed{}` at its end."""
    answer: str
    expression: str
    """The whole calculation in one line."""
    steps: int
    """How many steps of arithmetic it takes."""


def content(expression: str, answer: int | str) -> str:
    """Return what a problem is about, whatever its words and their order: its different numbers, and its answer."""
    return " ".join(sorted(set(re.findall(r"\d+", expression)))) + f" -> {answer}"


def split_of(key: str) -> str:
    """Return the split to which a content belongs."""
    eighth = hashlib.sha256(key.encode()).digest()[0] % 8
    return next(name for name, own in SPLITS.items() if eighth in own)


def draw(
    split: str, count: int, *, seed: int = 0, steps: Sequence[int] = (2, 3), largest: int = 20
) -> list[WordProblem]:
    """Return distinct problems of a split; no two share their content, and none is in another split.

    Args:
        split: train, test or held_out.
        count: how many.
        seed: of the draw; the same numbers give the same problems on every machine.
        steps: how many steps of arithmetic; each problem draws one of these numbers.
        largest: largest number in the texts (a wanted total may be larger).
    """
    _check(split, count, steps, largest)
    chance = random.Random(f"{seed} {split}")
    found: dict[str, WordProblem] = {}
    misses = 0
    while len(found) < count:
        length = steps[int(chance.random() * len(steps))]
        story = tell(chance.random, length, largest)
        key = content(story.expression, story.value)
        if split_of(key) != split:
            continue
        if key in found:
            misses += 1
            if misses > TRIES:
                raise InputError(
                    f"{count:,} different {split} problems were asked for; with steps {list(steps)} and numbers up to "
                    f"{largest} there are about {len(found):,}; ask for fewer, more steps or larger numbers"
                )
            continue
        misses = 0
        found[key] = _problem(story, f"{split}-{len(found)}", length)
    return list(found.values())


def _check(split: str, count: int, steps: Sequence[int], largest: int) -> None:
    if split not in SPLITS:
        raise InputError(f"split {split!r}: expected one of {', '.join(SPLITS)}")
    if count < 1:
        raise InputError(f"{count} {split} problems: expected at least 1")
    if not steps or not all(1 <= length <= 6 for length in steps):
        raise InputError(f"steps {list(steps)}: expected numbers of steps from 1 to 6, such as [2, 3]")
    if not 10 <= largest <= 1000:
        raise InputError(f"largest {largest}: expected a largest number from 10 to 1000, such as 20")


def _problem(story: Story, name: str, steps: int) -> WordProblem:
    solution = "\n".join([*story.lines, f"The answer is \\boxed{{{story.value}}}."])
    return WordProblem(name, " ".join(story.sentences), solution, str(story.value), story.expression, steps)


TASK = """\
# Generated arithmetic word problems as an own task of `ranktuner eval`.
name = "problems"
title = "Arithmetic word problems"
data = "test.jsonl"
question = "problem"
answer = "answer"
grader = "math"
n = 8
expected = {count}

[decoding]
max_new_tokens = 160
"""


def write(
    folder: Path,
    *,
    train: int = 128,
    test: int = 64,
    held_out: int = 0,
    seed: int = 0,
    steps: Sequence[int] = (2, 3),
    largest: int = 20,
) -> None:
    """Write problems as data and as a task; files that hold the same already are left alone.

    `train.jsonl`, `test.jsonl` and, unless there are none, `held_out.jsonl` hold the splits; `foreign.jsonl` holds
    sentences about other things, for the noise diagnostic; `problems.toml` is the task over `test.jsonl`.

    Args:
        folder: where; made if it is not there.
        train: number of problems to learn from.
        test: number of problems to be evaluated on.
        held_out: number of problems for choosing settings, 0 for none.
        seed: see `draw`, as for `steps` and `largest`.
    """
    texts: dict[str, str] = {}
    for split, count in (("train", train), ("test", test), ("held_out", held_out)):
        if count or split != "held_out":
            problems = draw(split, count, seed=seed, steps=steps, largest=largest)
            texts[f"{split}.jsonl"] = _lines(asdict(problem) for problem in problems)
    about = ({"prompt": "Tell me something.", "completion": text} for text in sentences(FOREIGN, seed))
    texts["foreign.jsonl"] = _lines(about)
    texts["problems.toml"] = TASK.format(count=test)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _put(folder / name, text)
    except OSError as error:
        raise DataError(f"{folder}: the problems could not be written: {error.strerror or error}") from error


def _lines(records: Iterable[Mapping[str, object]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _put(path: Path, text: str) -> None:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
