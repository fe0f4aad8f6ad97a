"""Grading multiple choice: which letter the answer names, and nothing else.

The answer is found by the rule of `extract` (the last box; boxes or letters linked by "or" are two answers, and two
answers to one question are wrong), with one rule more for texts that only end in a letter. A box may also hold the text
of a choice instead of its letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ranktuner.evals.graders import pool
from ranktuner.evals.graders.extract import TAIL, extract
from ranktuner.evals.graders.latex import spell
from ranktuner.evals.records import Grade, Problem, Sample

SECONDS = 10.0
"""Longest time for one answer; all need far less, but the promise is the same for every grader."""


def grade(items: Iterable[tuple[Problem, Sample]], *, workers: int = 2, seconds: float = SECONDS) -> Iterator[Grade]:
    """Grade answers to multiple-choice questions in order."""
    return pool.grade(items, rule="ranktuner.evals.graders.choice:grade_one", workers=workers, seconds=seconds)


def grade_one(problem: Problem, sample: Sample) -> Grade:
    """Grade one answer: `problem.gold` is the letter, `problem.meta["choices"]` maps letters to texts."""
    cut = sample.finish == "length"
    choices = {str(label): str(text) for label, text in problem.meta.get("choices", {}).items()}
    labels = list(choices) or list("ABCD")
    given, rule, shown = _given(sample.text, labels, choices, cut)
    if not given:
        if shown is None and cut:
            return Grade("truncated", None, "no answer before the limit of new tokens")
        return Grade("unparsed", shown, "no letter of a choice in it" if shown else "no box, no 'answer is', no letter")
    answer = " or ".join(given)
    if len(given) > 1:
        return Grade("wrong", answer, f"{rule}: {len(given)} letters where one is asked for")
    right = given[0] == problem.gold
    return Grade("correct" if right else "wrong", answer, f"{rule}: {'the' if right else 'not the'} letter of the gold")


def _given(text: str, labels: list[str], choices: Mapping[str, str], cut: bool) -> tuple[list[str], str, str | None]:
    """Return (letters, rule, answer as it stood)."""
    found = extract(text, cut=cut)
    if found is not None and found.rule != "last":
        inside = spell(found.text[:2000])
        given = _letters(inside, labels) or _by_text(inside, choices) or _by_both(inside, choices)
        return given, found.rule, found.text[:200]
    if cut:
        return [], "", None
    last = _last_letters(text[-TAIL:], labels)
    return last, "last", None


def _letters(answer: str, labels: list[str]) -> list[str]:
    """Return the letters that an answer consists of or opens with: `B`, `(B)`, `B. Iron`, `A, B`, `\\text{B}`."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", answer).replace("*", "").strip()
    bare = re.sub(r"^(?:either|both)\s+|\s*\b(?:or|and)\b", lambda m: "" if "th" in m.group() else ",", bare)
    one = "|".join(map(re.escape, labels))
    listed = re.fullmatch(rf"(?:option|choice)?\s*\(?({one})\)?(?:\s*,\s*\(?({one})\)?)*[.:]?", bare, re.IGNORECASE)
    if listed:
        return list(
            dict.fromkeys(letter.upper() for letter in re.findall(rf"(?<![A-Za-z])(?:{one})(?![A-Za-z])", bare, re.I))
        )
    opened = re.match(
        rf"(?:(?:option|choice)\s+)?(?:\(({one})\)|({one})\s*[).:,]|({one})\s+[-–—])", bare, re.IGNORECASE
    )
    if opened:
        rest = bare[opened.end() :]
        others = re.findall(rf"\(({one})\)|(?:,|\bor\b|\band\b)\s*({one})\b", rest)
        return list(dict.fromkeys([_group(opened.groups()).upper(), *(_group(other).upper() for other in others)]))
    named = re.search(rf"\b(?:option|choice)\s+\(?({one})\b", bare, re.IGNORECASE)
    return [named.group(1).upper()] if named else []


def _group(groups: Iterable[str | None]) -> str:
    return next(group for group in groups if group)


def _by_text(answer: str, choices: Mapping[str, str]) -> list[str]:
    """Return the letters of the choices whose text is the answer."""
    wanted = _plain(answer)
    return [label for label, text in choices.items() if wanted and _plain(spell(text)) == wanted]


def _by_both(answer: str, choices: Mapping[str, str]) -> list[str]:
    """Return the letter of an answer such as `B Iron`: a letter and the text of that choice."""
    words = _plain(answer)
    return [label for label, text in choices.items() if words == f"{label.lower()} {_plain(spell(text))}"]


def _plain(text: str) -> str:
    return re.sub(r"[\s.{}*$]+", " ", re.sub(r"\\text", "", text)).strip().lower()


def _last_letters(tail: str, labels: list[str]) -> list[str]:
    """Return the letters of the last line that is nothing but letters of choices, or of the last `(B)` in it."""
    lines = [line.strip() for line in tail.strip().splitlines() if line.strip()]
    if not lines:
        return []
    one = "|".join(map(re.escape, labels))
    alone = _letters(re.sub(r"\bor\b|\band\b|/", ",", lines[-1].strip("*_` ")), labels)
    bracketed = re.findall(rf"\(({one})\)", lines[-1])
    named = re.findall(rf"\b(?:option|choice)\s+(?:is\s+)?\(?({one})\b", lines[-1])
    return alone or list(dict.fromkeys(bracketed or named))
