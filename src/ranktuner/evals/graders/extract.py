"""Where in a text the answer stands. One rule for every grader, in time linear in the text.

1. The last complete `\\boxed{...}`. Boxes that only commas, "and" or "or" separate from it belong to it, so that
   `\\boxed{3} and \\boxed{5}` is two values and `\\boxed{41} or \\boxed{42}` is no way to be right twice.
2. Without a box: what follows the last "answer is", "answer:" or a closing `####`.
3. Without either, and only where the text ended by itself: the last mathematics or number, with its own "or"s.

A text that was cut at the token limit has an answer only by the first two rules; so has one with an unclosed box.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Rule = Literal["box", "phrase", "last"]

TAIL = 20_000
"""Characters from the end in which rules 2 and 3 look: an answer that is not boxed stands at the end."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_LINK = re.compile(r"(?:\s|[,;$.]|\\[,;:! ]|\\[()\[\]]|\\q?quad|\\text\s*\{|\}|\*|and\b|or\b|&)*")
_PHRASE = re.compile(
    r"\banswers?\s*(?:to\s[^.\n]{1,80}?\s)?(?:(?:is|are|was|would\s+be|must\s+be|should\s+be|equals)\b\s*:?|:|=)"
    r"|^\s*####(?=\s*[-+$\\\d(.\[])",
    re.IGNORECASE | re.MULTILINE,
)
_MATH = re.compile(
    r"\$\$(?P<dd>[^$]+)\$\$|(?<!\\)\$(?P<d>(?:\\.|[^$\\\n])+)\$|\\\((?P<p>(?:(?!\\[()]).)+)\\\)|\\\[(?P<b>(?:(?!\\[\[\]]).)+)\\\]",
    re.DOTALL,
)
_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?\\?\$?\s?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d+)?"
    r"(?:\s?/\s?\d+(?!\w))?\s?(?:\\?%)?"
)
_STOP = re.compile(r"\n|[.!?](?=\s|$|\*)|,?\s(?:because|since|which|as\s+(?:we|the|it)|so\b|where)\s|\s*<\|")
_FILLER = re.compile(
    r"^(?:[\s:*_]|(?:therefore|then|thus|simply|just|indeed|given\s+by|equal\s+to|exactly|approximately|about|the|option|"
    r"choice|number|value|of)\b|=)+",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Extracted:
    """An answer as it stands in the text, and the rule that found it."""

    text: str
    rule: Rule


def boxes(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, content) of every complete, outermost box of the text, in order."""
    found: list[tuple[int, int, str]] = []
    end = 0
    closing = _closing_braces(text) if "\\boxed" in text or "\\fbox" in text else {}
    for match in _BOX.finditer(text):
        if match.start() < end or match.end() >= len(text):
            continue
        brace = match.end()
        if text[brace] == "{":
            if brace not in closing:
                continue
            end = closing[brace] + 1
            if text[brace + 1 : end - 1].strip():  # an empty box is the prompt's, said again
                found.append((match.start(), end, text[brace + 1 : end - 1]))
        elif text[brace].isalnum():
            end = brace + 1
            found.append((match.start(), end, text[brace]))
    return found


def _closing_braces(text: str) -> dict[int, int]:
    """Return where each `{` is closed, in one pass: a thousand unclosed boxes must not cost a thousand scans."""
    closing: dict[int, int] = {}
    open_braces: list[int] = []
    for match in re.finditer(r"\\[{}]|[{}]", text):
        if match.group() == "{":
            open_braces.append(match.start())
        elif match.group() == "}" and open_braces:
            closing[open_braces.pop()] = match.start()
    return closing


def last_box(text: str) -> str | None:
    """Return the content of the last complete box, together with the boxes linked to it; None without any."""
    linked = _linked(text, boxes(text))
    return ", ".join(linked) if linked else None


def _linked(text: str, spans: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return the contents of the last span and of those before it that only separators part from it, once each."""
    taken: list[str] = []
    start = None
    for begin, end, content in reversed(spans):
        if start is not None and not (start - end <= 40 and _LINK.fullmatch(text, end, start)):
            break
        start = begin
        if content not in taken:
            taken.append(content)
    return taken[::-1]


def extract(text: str, *, cut: bool) -> Extracted | None:
    """Return the answer of a text by the three rules above, or None.

    Args:
        text: what the model wrote.
        cut: it was cut at the token limit; then only an explicit answer counts.

    Returns:
        the answer with the rule that found it.
    """
    box = last_box(text)
    if box is not None:
        return Extracted(box, "box")
    tail = text[-TAIL:]
    for phrase in list(_PHRASE.finditer(tail))[-1:]:
        answer = _after_phrase(tail[phrase.end() :])
        if answer and not (cut and tail.rstrip(" \n*").endswith(answer)):
            return Extracted(answer, "phrase")
    answer = "" if cut or "\\boxed" in tail else _last(tail)
    return Extracted(answer, "last") if answer else None


def _after_phrase(tail: str) -> str:
    """Return the answer at the head of what follows "answer is": its mathematics, or its sentence without filler."""
    tail = tail.lstrip(" \t:*_\n")[:2000]
    maths = [(m.start(), m.end(), _content(m)) for m in _MATH.finditer(tail)]
    sentence = _STOP.search(tail)
    if maths and (sentence is None or maths[0][0] <= sentence.start()):
        first = [maths[0]]
        for span in maths[1:]:
            if not _LINK.fullmatch(tail, first[-1][1], span[0]):
                break
            first.append(span)
        return ", ".join(dict.fromkeys(content for *_, content in first))
    words = tail[: sentence.start()] if sentence else tail
    words = _FILLER.sub("", words).strip(" *_,;:")
    if re.search(r"[a-zA-Z]{3,}\s+[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", words)):
        return _numbers(words, every=True) or words
    return words


def _last(tail: str) -> str:
    """Return the last mathematics or number of the text, whichever ends later, with what "or" links to it."""
    maths = [(m.start(), m.end(), _content(m)) for m in _MATH.finditer(tail)]
    outside = _MATH.sub(lambda m: " " * len(m.group()), tail)
    numbers = [(m.start(), m.end(), m.group()) for m in _NUMBER.finditer(outside) if m.group().strip()]
    if maths and (not numbers or maths[-1][1] > numbers[-1][1]):
        return ", ".join(_linked(tail, maths))
    return ", ".join(_linked(tail, numbers))


def _numbers(words: str, *, every: bool) -> str:
    """Return all numbers of a sentence, joined by commas: a sentence that names three is a list of three."""
    return ", ".join(dict.fromkeys(m.group().strip() for m in _NUMBER.finditer(words) if m.group().strip()))


def _content(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()
