"""Rows with planted noise: what the noise diagnostic and the check of `inspect data` are measured on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ranktuner.data.shapes import Row
from ranktuner.diagnostics.noise import CORRUPTION_RATIO, Piece, first_sentence, plant
from ranktuner.diagnostics.summaries import need
from ranktuner.errors import DataError


def answer_of(row: Row) -> str:
    """Return the text of a row's last assistant turn; rows without one have nothing to plant noise in."""
    for message in reversed(row.messages):
        if message["role"] == "assistant" and isinstance(message.get("content"), str):
            return str(message["content"])
    raise DataError(f"{row.id}: no answer text to plant noise in; expected a last assistant turn with text")


def prompt_of(row: Row) -> str:
    """Return the text that a row's answer answers: its last user turn."""
    for message in reversed(row.messages):
        if message["role"] == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    return ""


def with_answer(row: Row, answer: str) -> Row:
    """Return the row with another text in its last assistant turn."""
    last = max(i for i, m in enumerate(row.messages) if m["role"] == "assistant")
    messages = [{**m, "content": answer} if i == last else m for i, m in enumerate(row.messages)]
    return replace(row, messages=tuple(messages))


def sentences_of(rows: Sequence[Row], least: int) -> list[str]:
    """Return the first sentences of the rows' answers, without the rows whose answer begins with none, and repeats."""
    found = list(dict.fromkeys(s for row in rows if (s := first_sentence(answer_of(row)))))
    need(len(found), least, "answers that begin with a sentence of three words", "the noise data")
    return found


def draw(rows: Sequence[Row], count: int, seed: int) -> list[Row]:
    """Return `count` of the rows (all of them where there are no more), chosen by the seed, in their order."""
    if count >= len(rows):
        return list(rows)
    chosen = np.random.default_rng(seed).choice(len(rows), count, replace=False)
    return [rows[i] for i in sorted(chosen.tolist())]


def plant_sentences(
    rows: Sequence[Row], sentences: Sequence[str], seed: int, ratio: float = CORRUPTION_RATIO
) -> tuple[list[Row], dict[str, Piece]]:
    """Insert a foreign sentence into a share of the rows.

    Returns:
        The rows, and what was inserted: number of the row (as text, for JSON) -> its place and text.
    """
    planted = plant([answer_of(row) for row in rows], sentences, seed, ratio)
    new = [
        with_answer(row, text) if i in planted.pieces else row
        for i, (row, text) in enumerate(zip(rows, planted.texts, strict=True))
    ]
    return new, {str(number): piece for number, piece in planted.pieces.items()}


def plant_answers(
    rows: Sequence[Row], seed: int, ratio: float = CORRUPTION_RATIO
) -> tuple[list[Row], dict[str, Piece]]:
    """Give a share of the rows each other's answers: mislabelled rows. At least two rows are exchanged."""
    count = max(2, round(ratio * len(rows)))
    need(len(rows), count + 1, "rows to exchange answers in")
    chosen = np.random.default_rng(seed).choice(len(rows), count, replace=False).tolist()
    answers = [answer_of(rows[i]) for i in chosen]
    new = list(rows)
    for i, answer in zip(chosen, answers[1:] + answers[:1], strict=True):
        new[i] = with_answer(rows[i], answer)
    return new, {str(i): (0, answer_of(new[i])) for i in sorted(chosen)}


def plant_numbers(
    rows: Sequence[Row], seed: int, ratio: float = CORRUPTION_RATIO
) -> tuple[list[Row], dict[str, Piece]]:
    """Change the last number of a share of the rows' answers by one digit: a wrong result after a right derivation."""
    able = [i for i, row in enumerate(rows) if re.search(r"\d", answer_of(row))]
    count = max(1, round(ratio * len(rows)))
    need(len(able), count, "rows whose answer holds a number")
    rng = np.random.default_rng(seed)
    new, pieces = list(rows), {}
    for i in sorted(rng.choice(able, count, replace=False).tolist()):
        answer = answer_of(rows[i])
        last = list(re.finditer(r"\d+", answer))[-1]
        at = int(rng.integers(last.start(), last.end()))
        digit = (int(answer[at]) + int(rng.integers(1, 10))) % 10
        new[i] = with_answer(rows[i], answer[:at] + str(digit) + answer[at + 1 :])
        pieces[str(i)] = (last.start(), answer_of(new[i])[last.start() : last.end()])
    return new, pieces
