"""What an answer is made of: a value, several values, a tuple or interval, a union, a matrix. No mathematics yet.

The structure is read here and not by a computer algebra system, because there `(1, 2)` is an open interval and `1, 2` a
set, both equal to each other, and the boxes of a text are one set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ranktuner.evals.graders.latex import spell, split_top
from ranktuner.evals.graders.units import strip_units


@dataclass(frozen=True)
class Atom:
    """One value."""

    text: str
    """Without name, unit and percent sign."""
    name: str | None = None
    """What stood before `=`: `x`, `f(x)`."""
    unit: str | None = None
    percent: bool = False
    raw: str = ""
    """As it was spelled, unit and all."""


@dataclass(frozen=True)
class Many:
    """Several values without order: `1, 2` or `\\{1, 2\\}`."""

    items: tuple[Value, ...]
    braces: bool


@dataclass(frozen=True)
class Bracket:
    """Several values in order between brackets: a point, or an interval; which of them only its brackets say."""

    open: str
    close: str
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Union:
    """Sets joined by `\\cup`."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Matrix:
    """Rows of values."""

    rows: tuple[tuple[Value, ...], ...]


Value = Atom | Many | Bracket | Union | Matrix

_NAME = re.compile(
    r"\s*((?:\\?[a-zA-Z]+|\\text\s*\{\s*\w+\s*\})(?:\s*_\s*(?:\{[^{}]*\}|\w))?(?:'|\^\{?\\prime\}?)*(?:\s*\([a-zA-Z](?:\s*,\s*[a-zA-Z])*\))?"
    r"|\([a-zA-Z](?:\s*,\s*[a-zA-Z])+\)|\\angle\s*[A-Z_0-9{}\s]+)\s*(?:=(?!=)|\\in\b)\s*(?=\S)"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}", re.DOTALL)
_NUMBERISH = r"[^<>=,]+?"
_BUILDER = re.compile(r"\s*\\?[a-zA-Z]\w?\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid\b|\\vert\b|[:|])(.+)", re.DOTALL)
_UNEQUAL = re.compile(rf"\s*(?:\\?[a-zA-Z]\w?)\s*\\ne\b({_NUMBERISH})")
_CHAIN = re.compile(rf"({_NUMBERISH})(<|\\le\b)\s*(?:\\?[a-zA-Z]\w?)\s*(<|\\le\b)({_NUMBERISH})")
_HALF = re.compile(rf"\s*(?:\\?[a-zA-Z]\w?)\s*(<|>|\\le\b|\\ge\b)({_NUMBERISH})")
_HALF_TURNED = re.compile(rf"({_NUMBERISH})(<|>|\\le\b|\\ge\b)\s*(?:\\?[a-zA-Z])\s*")


def read_value(text: str, *, words: bool, split_thousands: bool = False) -> Value:
    """Return the structure of an answer.

    Args:
        text: the answer as extracted.
        words: plain words behind a number are units (see `units.strip_units`).
        split_thousands: read `100,200` as two values and not as one number; the gold decides.

    Returns:
        a value; an answer that is none of the structures is one Atom.
    """
    spelled = spell(text)
    if not split_thousands:
        spelled = _THOUSANDS.sub(lambda m: m.group().replace(",", ""), spelled) if _flat(spelled) else spelled
    return _read(spelled, words)


def _flat(text: str) -> bool:
    """Return whether no bracket encloses the whole: inside `(100,200)` a comma always separates."""
    return not re.match(r"\s*(?:[(\[]|\\\{)", text)


def _read(text: str, words: bool) -> Value:
    if re.fullmatch(r"\][^\[\]]*\[", text):
        return _bracket(text, words) or _atom(text, None, words)
    parts = split_top(text)
    if len(parts) > 1:
        return _many([_read(part, words) for part in parts], braces=False)
    name, body = _named(parts[0] if parts else text)
    union = [u.strip() for u in _split_cup(body)]
    if len(union) > 1:
        return Union(tuple(_read(u, words) for u in union))
    return _matrix(body, words) or _bracket(body, words) or _relation(body, words) or _signs(body, name, words)


def _many(items: list[Value], *, braces: bool) -> Value:
    flat: list[Value] = []
    for item in items:
        flat += item.items if isinstance(item, Many) and not item.braces else [item]
    return Many(tuple(flat), braces)


def _named(text: str) -> tuple[str | None, str]:
    match = _NAME.match(text)
    if match is None:
        return None, text
    return re.sub(r"\s+", "", match.group(1)), text[match.end() :]


def _split_cup(text: str) -> list[str]:
    marked = re.sub(r"\\cup\b", "\x00", text)
    return split_top(marked, "\x00") if "\x00" in marked else [text]


def _matrix(text: str, words: bool) -> Matrix | None:
    match = _MATRIX.fullmatch(text.strip())
    if match is None:
        return None
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", match.group(2)) if row.strip()]
    return Matrix(tuple(tuple(_read(cell.strip(), words) for cell in row.split("&")) for row in rows))


_PAIRS = (("\\{", "\\}"), ("\\langle", "\\rangle"), ("(", ")"), ("[", "]"), ("(", "]"), ("[", ")"), ("]", "["))


def _bracket(text: str, words: bool) -> Value | None:
    """Read a set, a tuple or an interval; a single value in round brackets is that value."""
    text = text.strip()
    for opening, closing in _PAIRS:
        inner = text[len(opening) : -len(closing)]
        if not (text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing)):
            continue
        if opening != "]" and not _closes_at_end(text, opening):
            continue
        if (
            opening == "\\{"
            and (builder := _BUILDER.fullmatch(inner))
            and (found := _relation(builder.group(1), words))
        ):
            return found
        items = [_read(part, words) for part in split_top(inner)]
        if opening == "\\{":
            return _many(items, braces=True)
        if len(items) > 1:
            turned = {"\\langle": "(", "\\rangle": ")"} if opening != "]" else {"]": "(", "[": ")"}
            return Bracket(turned.get(opening, opening), turned.get(closing, closing), tuple(items))
    return None


def _closes_at_end(text: str, opening: str) -> bool:
    """Return whether the first bracket is closed by the last: not so in `(a+5)(b+2)`."""
    depth, i = 0, 0
    tokens = re.compile(r"\\[{}]|\\langle|\\rangle|\\[a-zA-Z]+|\\.|[()\[\]{}]")
    for match in tokens.finditer(text):
        token = match.group()
        depth += (token in ("(", "[", "{", "\\{", "\\langle")) - (token in (")", "]", "}", "\\}", "\\rangle"))
        i = match.end()
        if depth == 0 and token in (")", "]", "}", "\\}", "\\rangle"):
            break
    return depth == 0 and i == len(text)


def _relation(text: str, words: bool) -> Value | None:
    """Read `a < x \\le b`, `x > a` and `x \\ne a` as intervals; the name of the variable is let go."""
    read: Callable[[str], Value] = lambda part: _read(part.strip(), words)  # noqa: E731
    if match := _CHAIN.fullmatch(text):
        low, first, second, high = match.groups()
        return Bracket("(" if first == "<" else "[", ")" if second == "<" else "]", (read(low), read(high)))
    if match := _UNEQUAL.fullmatch(text):
        low, high = Atom(r"-\infty", raw=r"-\infty"), Atom(r"\infty", raw=r"\infty")
        gap = read(match.group(1))
        return Union((Bracket("(", ")", (low, gap)), Bracket("(", ")", (gap, high))))
    sign, bound = "", ""
    if match := _HALF.fullmatch(text):
        sign, bound = match.groups()
    elif match := _HALF_TURNED.fullmatch(text):
        bound, sign = match.group(1), {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}[match.group(2)]
    if not sign:
        return None
    if sign in ("<", r"\le"):
        return Bracket("(", ")" if sign == "<" else "]", (Atom(r"-\infty", raw=r"-\infty"), read(bound)))
    return Bracket("(" if sign == ">" else "[", ")", (read(bound), Atom(r"\infty", raw=r"\infty")))


def _signs(text: str, name: str | None, words: bool) -> Value:
    """Read an atom; with `\\pm` it is two, whose signs go together."""
    if r"\pm" in text:
        plus = re.sub(r"\\pm\b", "+", re.sub(r"\\mp\b", "-", text))
        minus = re.sub(r"\\pm\b", "-", re.sub(r"\\mp\b", "+", text))
        return Many((_atom(plus.strip().removeprefix("+"), name, words), _atom(minus, name, words)), braces=False)
    return _atom(text, name, words)


def _atom(text: str, name: str | None, words: bool) -> Atom:
    raw = text.strip()
    core, unit = strip_units(raw, words=words)
    percent = core.endswith("%")
    return Atom(core.removesuffix("%").strip(), name, unit, percent, raw)
