"""Answers that are no mathematics: numbers with a base, letters of choices, words."""

from __future__ import annotations

import re
from typing import NamedTuple


class Same(NamedTuple):
    """Whether two values are the same, and why."""

    right: bool
    why: str


_BASED = re.compile(
    r"\(?(\d[0-9A-Fa-f]*)\)?\s*"
    r"(?:_\s*\{?\s*\(?(?:\\text\s*\{)?\s*(\d{1,2}|[a-z]+)\s*\}?\)?\s*\}?"
    r"|(?:\\text\s*\{)?\s*base\s*\}?\s*(\d{1,2}|[a-z]+)\s*\}?)"
)
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"] + [
    "sixteen"
]
_BASES = {word: str(value) for value, word in enumerate(_WORDS[:-1])} | {"sixteen": "16"}


def _based(text: str) -> tuple[str, str] | None:
    """Return (digits, base) of a number that names its base."""
    match = _BASED.fullmatch(text.strip())
    if match is None:
        return None
    base = match.group(2) or match.group(3)
    base = _BASES.get(base, base)
    return (match.group(1).lstrip("0").upper() or "0", base) if base.isdigit() else None


def same_based(gold: str, answer: str) -> Same | None:
    """Compare where a base is named: base and digits must both agree; no base is base ten."""
    wanted, given = _based(gold), _based(answer)
    if wanted is None and given is None:
        return None
    plain = re.compile(r"\d+")
    wanted = wanted or ((gold.strip(), "10") if plain.fullmatch(gold.strip()) else None)
    given = given or ((answer.strip(), "10") if plain.fullmatch(answer.strip()) else None)
    if wanted is None or given is None:
        return Same(False, "a number with a base against another expression")
    if wanted[1] != given[1]:
        return Same(False, f"base {given[1]} where the gold has base {wanted[1]}")
    return Same(wanted[0] == given[0], "the same digits in the same base" if wanted[0] == given[0] else "other digits")


_LETTER = re.compile(r"\\text\s*\{\s*\(?([A-J])\)?\s*\}|\(([A-J])\)")
_LETTER_GIVEN = re.compile(
    r"(?:\\text\s*\{\s*)?(?:\(([A-J])\)|([A-J])(?=\s*(?:[.:)]|\}|$)))\s*+\}?+[\s.:)]*+(?![-+*/^=(])(.*)", re.DOTALL
)
_WORDY = re.compile(r"[A-Za-z][A-Za-z'’\- ]*[A-Za-z]")


def same_text(gold: str, answer: str) -> Same | None:
    """Compare where the gold is a letter of a choice or a word; None where it is mathematics."""
    if letter := _LETTER.fullmatch(gold):
        given = _LETTER_GIVEN.fullmatch(answer)
        right = bool(given) and (given.group(1) or given.group(2)) == (letter.group(1) or letter.group(2))  # type: ignore[union-attr]
        return Same(right, "the same letter" if right else "another letter")
    words = _words(gold)
    if words is None:
        return Same(False, "words where the gold is mathematics") if _is_prose(answer) else None
    right = _words(answer) == words
    return Same(right, "the same words" if right else "other words")


def _words(text: str) -> str | None:
    """Return the words of a text answer in small letters, or None where it is mathematics.

    A text command makes words of anything (`\\text{even}`); without one only letters of three or more do, since `ab` is
    a product.
    """
    inside = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip(" .,!*\"'")
    if not _WORDY.fullmatch(inside) or ("\\text" not in text and not re.search(r"[A-Za-z]{3}", inside)):
        return None
    return re.sub(r"^(?:the|an?)\s+", "", re.sub(r"\s+", " ", inside).lower())


def _is_prose(answer: str) -> bool:
    """Return whether the answer is words and no mathematics: `\\text{no solution}`, `I do not know`."""
    words = _words(answer)
    return words is not None and ("\\text" in answer or len(words.split()) > 1)
