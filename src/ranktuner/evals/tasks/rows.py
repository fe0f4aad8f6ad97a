"""Row of a public set -> Problem: where each set hides its gold, and the traps in it.

Every reader accepts the fields of the file and those of the hub's copy, which differ in names only.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping
from typing import Any

from ranktuner.errors import DataError
from ranktuner.evals.graders.extract import last_box
from ranktuner.evals.humaneval import problem_of_row
from ranktuner.evals.records import Problem
from ranktuner.evals.tasks.task import Row

LETTERS = "ABCDEFGHIJ"


def field(row: Row, *names: str) -> Any:
    """Return the first of the named fields that the row has; none of them is an error that lists what is there."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise DataError(f"no field {' or '.join(map(repr, names))}; the row has {', '.join(map(repr, row)) or 'none'}")


def text_field(row: Row, *names: str) -> str:
    """Return the first of the named fields as text that is not blank."""
    value = field(row, *names)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"field {names[0]!r} is {value!r:.60}; expected text")
    return value


def clean_gold(gold: str) -> str:
    """Return a gold without dollars, line ends, a closing full stop and leading space commands.

    Golds in the wild hold `$` in the middle of a box, `$221,$8$`, `\\{1\\}$.` and a final newline; math-verify
    rejects such a gold against itself.
    """
    gold = re.sub(r"(?<!\\)\$", " ", gold.replace("\n", " "))
    gold = re.sub(r"^(\\quad|\\qquad|\\,|\s)+", "", gold)
    return re.sub(r"\s+", " ", gold).strip().removesuffix(".").strip()


def _math(row: Row, number: str, gold: str, id_fields: tuple[str, ...], **meta: Any) -> Problem:
    """Return a mathematics problem; the gold as found stays in `meta` where more than dollars around it went."""
    cleaned = clean_gold(gold)
    if cleaned != gold.strip("$"):
        meta["gold_as_found"] = gold
    ids = [str(row[name]) for name in id_fields if row.get(name) is not None]
    return Problem(
        id=ids[0] if ids else number, question=text_field(row, "problem", "question"), gold=cleaned, meta=meta
    )


def math500(row: Row, number: str) -> Problem:
    """Read MATH-500: `answer` is the gold, `unique_id` the id."""
    level = {name: row[name] for name in ("level", "subject") if name in row}
    return _math(row, number, text_field(row, "answer"), ("unique_id",), **level)


MINERVA_REPAIRS = {r"np.arcsin(10/13)": r"\arcsin(10/13)"}
"""A gold written in Python where LaTeX was meant."""

MINERVA_TOLERANCE = 1e-4
"""Relative; most golds are measured quantities. The value of the Qwen2.5-Math harness."""


def minerva(row: Row, number: str) -> Problem:
    """Read Minerva: the gold is the one box in `solution` (the hub's copy has it in `answer`)."""
    if "solution" in row:
        box = last_box(text_field(row, "solution"))
        if box is None:
            raise DataError("field 'solution' holds no complete \\boxed{...}, where this set keeps its gold")
        gold = box
    else:
        gold = text_field(row, "answer")
    meta: dict[str, Any] = {"tolerance": MINERVA_TOLERANCE}
    if gold in MINERVA_REPAIRS:
        meta["gold_as_found"], gold = gold, MINERVA_REPAIRS[gold]
    return _math(row, number, gold, ("idx",), **meta)


OLYMPIAD_REPAIRS = {"$t(0,4]$": "(0,4]"}
"""An interval with the name of its variable stuck to it."""


def olympiadbench(row: Row, number: str) -> Problem:
    """Read OlympiadBench: `final_answer` is a list with one string; `unit` and `error` (tolerance) may be set."""
    answers = field(row, "final_answer")
    answers = answers if isinstance(answers, list) else [answers]
    if not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        raise DataError(f"field 'final_answer' is {answers!r:.60}; expected a list of text")
    gold = ",".join(answers)
    meta: dict[str, Any] = {name: row[name] for name in ("answer_type", "subfield") if row.get(name)}
    if gold in OLYMPIAD_REPAIRS:
        meta["gold_as_found"], gold = gold, OLYMPIAD_REPAIRS[gold]
    if row.get("unit"):
        meta["unit"] = str(row["unit"]).strip("$ ")
    if row.get("error"):
        meta["tolerance_absolute"] = float(row["error"])
    return _math(row, number, gold, ("id",), **meta)


def integer(row: Row, number: str) -> Problem:
    """Read AIME and AMC: integers kept as `027`, `27.0` or 27."""
    value = field(row, "answer")
    try:
        gold = int(str(value).strip().replace(",", "").removesuffix(".0"))
    except ValueError:
        raise DataError(f"field 'answer' is {value!r}; expected an integer") from None
    found = {} if str(value) == str(gold) else {"gold_as_found": str(value)}
    return _math(row, number, str(gold), ("id", "ID"), **found)


def gsm8k(row: Row, number: str) -> Problem:
    """Read GSM8K: the gold stands after `####`, with thousands commas."""
    _, mark, gold = text_field(row, "answer").rpartition("####")
    if not mark:
        raise DataError("field 'answer' has no '####', after which this set keeps its gold")
    found = {} if "," not in gold else {"gold_as_found": gold.strip()}
    return _math(row, number, gold.strip().replace(",", ""), (), **found)


def arc(row: Row, number: str) -> Problem:
    """Read ARC: `question.choices` (the hub: `choices.text`, `choices.label`); labels 1-4 become letters."""
    question = field(row, "question")
    if isinstance(question, Mapping):
        stem, choices = text_field(question, "stem"), field(question, "choices")
        labels, texts = [str(c["label"]) for c in choices], [str(c["text"]) for c in choices]
    else:
        stem, choices = text_field(row, "question"), field(row, "choices")
        labels, texts = [str(label) for label in choices["label"]], [str(text) for text in choices["text"]]
    gold = str(field(row, "answerKey"))
    if gold not in labels:
        raise DataError(f"answerKey {gold!r} is not one of the labels {labels}")
    letters = dict(zip(labels, LETTERS, strict=False))
    return Problem(
        id=str(row.get("id", number)),
        question=stem,
        gold=letters[gold],
        meta={"choices": {letters[label]: text for label, text in zip(labels, texts, strict=True)}},
    )


def gpqa(row: Row, number: str) -> Problem:
    """Read GPQA: the right answer stands first in the file, so the choices are shuffled by a seed from the id."""
    names = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    texts = [text_field(row, name).strip() for name in names]
    ident = str(row.get("Record ID") or number)
    seed = int.from_bytes(hashlib.sha256(f"gpqa/{ident}".encode()).digest()[:4], "big")
    order = list(range(4))
    random.Random(seed).shuffle(order)
    choices = {LETTERS[place]: texts[source] for place, source in enumerate(order)}
    gold = LETTERS[order.index(0)]
    question = text_field(row, "Question").strip()
    return Problem(id=ident, question=question, gold=gold, meta={"choices": choices, "shuffle_seed": seed})


def code(row: Row, number: str) -> Problem:
    """Read HumanEval, HumanEval+ and a user's own code; what such a problem holds is the code grader's business."""
    return problem_of_row(row, number)
