"""Whether an answer is the gold: their structures are matched, then their values.

Rules are named in `math_answer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from ranktuner.evals.graders import algebra
from ranktuner.evals.graders.latex import Number, number, split_top, squeeze
from ranktuner.evals.graders.units import canonical
from ranktuner.evals.graders.values import Atom, Bracket, Many, Matrix, Union, Value, read_value
from ranktuner.evals.graders.words import Same, same_based, same_text


class Rules(NamedTuple):
    """What the problem says about comparing, beside its gold."""

    relative: Fraction
    absolute: Fraction | None
    percent: bool
    """Gold, unit or question speak of percent."""
    unit: str | None
    literal: bool
    """Equal writing is enough. Off when golds are checked: there it would accept whatever cannot be read."""


def same(
    gold: str, answer: str, meta: Mapping[str, Any] | None = None, question: str = "", *, literal: bool = True
) -> Same:
    """Return whether the answer is the gold.

    Args:
        gold: the gold.
        answer: the extracted answer.
        meta: the problem's; `tolerance`, `tolerance_absolute` and `unit` count.
        question: the problem's text; whether it asks for a percentage counts.
        literal: the same writing is the same answer without reading it.

    Returns:
        the verdict with the rule that decided. An answer that is no mathematics raises `algebra.UnreadableError`.
    """
    meta = meta or {}
    unit = meta.get("unit")
    absolute = meta.get("tolerance_absolute")
    rules = Rules(
        relative=max(Fraction(str(meta.get("tolerance", 0))), algebra.ROUNDING),
        absolute=None if absolute is None else Fraction(str(absolute)),
        percent=bool(re.search(r"percent|%", f"{question} {gold} {unit or ''}")),
        unit=canonical(unit) if unit else None,
        literal=literal,
    )
    words = not _has_variables(gold)
    wanted, given = read_value(gold, words=words), read_value(answer, words=words)
    if isinstance(wanted, Many) and isinstance(given, Atom):
        given = _as_list(answer, len(wanted.items), given, words)
    return _same(wanted, given, rules)


def _as_list(answer: str, size: int, given: Value, words: bool) -> Value:
    """Return `100,200` as two values where the gold has two: the gold decides what the comma is."""
    split = read_value(answer, words=words, split_thousands=True)
    return split if isinstance(split, Many) and len(split.items) == size else given


_COUNTED = re.compile(r"\s*\\?\$?[-+]?\d[\d,./]*(?:\s+(?:[A-Za-z]{4,}|mph|km|cm|mm|kg|mg|lb|ft)\.?)+\s*")
"""A gold such as `12 apples` or `15 mph`: a number and words, not a product of letters."""


def _has_variables(gold: str) -> bool:
    """Return whether letters stand in the gold that are neither commands, words nor the numbers e and i."""
    if _COUNTED.fullmatch(gold):
        return False
    bare = re.sub(r"\\(?:text|mathrm|mbox|textbf)\s*\{[^{}]*\}|\\[a-zA-Z]+|\d+\.?\d*[eE][-+]?\d+|%", " ", gold)
    return bool(re.search(r"[a-df-hj-zA-DF-HJ-Z]", bare))


# --- structure -------------------------------------------------------------------------------------------------------


def _same(gold: Value, answer: Value, rules: Rules) -> Same:
    """Compare two values; the structures are matched here, what they are made of in `_same_atom`."""
    gold, answer = _unwrap(gold), _unwrap(answer)
    if isinstance(gold, Atom) and isinstance(answer, Atom):
        return _same_atom(gold, answer, rules)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _same_matrix(gold, answer, rules)
    if isinstance(gold, Union) or isinstance(answer, Union):
        return _same_union(gold, answer, rules)
    if isinstance(gold, Bracket) or isinstance(answer, Bracket):
        return _same_bracket(gold, answer, rules)
    wanted = gold.items if isinstance(gold, Many) else (gold,)
    given = answer.items if isinstance(answer, Many) else (answer,)
    return _same_unordered(wanted, given, rules)


def _unwrap(value: Value) -> Value:
    return value.items[0] if isinstance(value, Many) and len(value.items) == 1 else value


def _same_unordered(gold: tuple[Value, ...], answer: tuple[Value, ...], rules: Rules) -> Same:
    """Match every gold value with an answer value, one to one."""
    if len(answer) == 1 < len(gold) and all(_same(gold[0], other, rules).right for other in gold[1:]):
        gold = gold[:1]  # "both are 90 degrees" is a full answer
    if len(gold) == 1 < len(answer) and all(_safe_same(gold[0], given, rules) for given in answer):
        return Same(True, "the same value, written more than once")
    if len(gold) != len(answer):
        return Same(False, f"{_count(answer)} where the gold has {len(gold)}")
    left = list(answer)
    for wanted in gold:
        match = next((i for i, given in enumerate(left) if _safe_same(wanted, given, rules)), None)
        if match is None:
            return Same(False, f"none of the values is {_show(wanted)}")
        left.pop(match)
    return Same(True, "the same values" if len(gold) > 1 else "the same value")


def _safe_same(gold: Value, answer: Value, rules: Rules) -> bool:
    """Compare two values of a list; one that cannot be read is only not this one."""
    try:
        return _same(gold, answer, rules).right
    except algebra.UnreadableError:
        return False


def _count(values: tuple[Value, ...]) -> str:
    return f"{len(values)} value" + ("s" if len(values) != 1 else "")


def _show(value: Value) -> str:
    return value.raw[:60] if isinstance(value, Atom) else f"the {type(value).__name__.lower()}"


def _same_ordered(gold: tuple[Value, ...], answer: tuple[Value, ...], rules: Rules) -> Same:
    if len(gold) != len(answer):
        return Same(False, f"{_count(answer)} where the gold has {len(gold)}")
    for place, (wanted, given) in enumerate(zip(gold, answer, strict=True), 1):
        verdict = _same(wanted, given, rules)
        if not verdict.right:
            return Same(False, f"place {place}: {verdict.why}")
    return Same(True, "the same values in order")


def _same_bracket(gold: Value, answer: Value, rules: Rules) -> Same:
    """Compare where at least one side has brackets: order counts, and for pairs the brackets do."""
    if isinstance(gold, Bracket) and isinstance(answer, Bracket):
        if len(gold.items) == len(answer.items) == 2 and (gold.open, gold.close) != (answer.open, answer.close):
            return Same(False, f"brackets {answer.open}{answer.close} where the gold has {gold.open}{gold.close}")
        return _same_ordered(gold.items, answer.items, rules)
    bracket, other = (gold, answer) if isinstance(gold, Bracket) else (answer, gold)
    assert isinstance(bracket, Bracket)
    if isinstance(other, Many) and not other.braces and (bracket.open, bracket.close) == ("(", ")"):
        wanted, given = (bracket.items, other.items) if bracket is gold else (other.items, bracket.items)
        return _same_ordered(wanted, given, rules)
    if isinstance(gold, Many) and gold.braces is False and any(isinstance(item, Bracket) for item in gold.items):
        return _same_unordered(gold.items, (answer,), rules)
    texts = _as_set(gold), _as_set(answer)
    if isinstance(other, Atom) and None not in texts and algebra.whole_equal(str(texts[0]), str(texts[1])):
        return Same(True, "equal as sets")  # `\\mathbb{R}` and the interval of all numbers
    kinds = "a set or a single value" if isinstance(gold, Bracket) else "a tuple or interval"
    return Same(False, f"{kinds} where the gold is of another kind")


def _same_union(gold: Value, answer: Value, rules: Rules) -> Same:
    """Compare unions part by part; where the parts differ, as sets, since one set is written in many ways."""
    wanted, given = _parts(gold), _parts(answer)
    if wanted and given and len(wanted) == len(given):
        verdict = _same_unordered(wanted, given, rules)
        if verdict.right:
            return verdict
    texts = _as_set(gold), _as_set(answer)
    if None not in texts and algebra.whole_equal(str(texts[0]), str(texts[1])):
        return Same(True, "equal as sets")
    return Same(False, "another set")


def _parts(value: Value) -> tuple[Value, ...]:
    if isinstance(value, Union) or (isinstance(value, Many) and not value.braces):
        return value.items
    return (value,)


def _as_set(value: Value) -> str | None:
    """Return a union of intervals and sets as LaTeX, or None where it is something else."""
    if isinstance(value, Bracket) and len(value.items) == 2 and all(isinstance(i, Atom) for i in value.items):
        return f"{value.open}{_text(value.items[0])}, {_text(value.items[1])}{value.close}"
    if isinstance(value, Many) and value.braces and all(isinstance(i, Atom) for i in value.items):
        return "\\{" + ", ".join(_text(item) for item in value.items) + "\\}"
    if isinstance(value, Union):
        parts = [_as_set(item) for item in value.items]
        return None if None in parts else r" \cup ".join(str(part) for part in parts)
    if isinstance(value, Atom) and re.search(r"\\setminus|\\mathbb|\\backslash", value.raw):
        return value.raw
    return None


def _text(value: Value) -> str:
    assert isinstance(value, Atom)
    return value.text


def _same_matrix(gold: Value, answer: Value, rules: Rules) -> Same:
    """Compare matrices by place; a single row or column may be written as a tuple."""
    shapes = [_shape(gold), _shape(answer)]
    if isinstance(gold, Matrix) and isinstance(answer, Matrix) and shapes[0] != shapes[1]:
        return Same(False, f"a matrix of {shapes[1]} where the gold is {shapes[0]}")
    if None in shapes:
        return Same(False, "a matrix on one side only")
    return _same_ordered(_entries(gold), _entries(answer), rules)


def _shape(value: Value) -> tuple[int, ...] | None:
    if isinstance(value, Matrix):
        return (len(value.rows), *sorted({len(row) for row in value.rows}))
    return (len(value.items),) if isinstance(value, Bracket) and value.open in "([" else None


def _entries(value: Value) -> tuple[Value, ...]:
    if isinstance(value, Matrix):
        return tuple(cell for row in value.rows for cell in row)
    return value.items if isinstance(value, Bracket) else ()


# --- single values ---------------------------------------------------------------------------------------------------


def _same_atom(gold: Atom, answer: Atom, rules: Rules) -> Same:
    """Compare two values: base, text, unit and name first, then the mathematics."""
    if gold.name and answer.name and gold.name != answer.name and "=" not in gold.text:
        turned = _same_equation(gold, answer)
        return turned or Same(False, f"a value of {answer.name} where the gold is of {gold.name}")
    for rule in (same_based, same_text):
        verdict = rule(gold.raw, answer.raw)
        if verdict is not None:
            return verdict
    unit = gold.unit or rules.unit
    if unit and answer.unit and unit != answer.unit:
        return Same(False, f"unit {answer.unit} where the gold has {unit}")
    # `y = ...` is a side of an equation where the other is a whole one; elsewhere y is only the value's name.
    whole = (gold.name and _is_equation(answer.text)) or (answer.name and _is_equation(gold.text))
    if bool(gold.name) != bool(answer.name) and whole and (turned := _same_equation(gold, answer)):
        return turned
    if rules.literal and squeeze(gold.text) == squeeze(answer.text) and gold.percent == answer.percent:
        return Same(True, "written alike")
    return _same_mathematics(gold, answer, rules)


def _same_equation(gold: Atom, answer: Atom) -> Same | None:
    """Accept `y = x` for `x = y` and `2xy = 12` for `xy = 6`: a name before `=` may be a side of an equation."""
    left, right = (f"{value.name}={value.text}" if value.name else value.text for value in (gold, answer))
    try:
        if algebra.whole_equal(left, right):
            return Same(True, "the same equation")
    except algebra.UnreadableError:
        pass
    return None


def _same_mathematics(gold: Atom, answer: Atom, rules: Rules) -> Same:
    texts = [answer.text] if _is_equation(gold.text) else _right_sides(answer.text, gold.text)
    verdict = Same(False, "")
    for text in texts:
        verdict = _same_number(gold, answer, text, rules)
        if verdict.right:
            break
    if not verdict.right and gold.raw != gold.text and answer.unit != gold.unit and _has_variables(answer.raw):
        # `6 \text{ m}` for the gold `6m`: the letters were a variable after all
        plain = [re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", value.raw) for value in (gold, answer)]
        if rules.literal and squeeze(plain[0]) == squeeze(plain[1]):
            return Same(True, "written alike")
    return verdict


def _sides(text: str) -> list[str]:
    """Return what stands between the `=` outside all brackets: not those of `\\sum_{k=1}`."""
    marked = split_top(re.sub(r"(?<![<>\\])=", "\x00", text), "\x00") if "=" in text else [text]
    return [side.replace("\x00", "=") for side in marked]


def _is_equation(text: str) -> bool:
    return len(_sides(text)) > 1


def _right_sides(answer: str, gold: str) -> list[str]:
    """Return what an answer such as `2 + 3 = 5` or `\\sqrt 2 \\approx 1.41` says in the end.

    The exact value stands before the `\\approx`; what follows it counts only against a decimal gold.
    """
    answer = re.sub(r"^\\text\s*\{[^{}]*\}\s*:?\s*(?=\S)", "", answer)  # \text{The answer is } 42
    sides = re.split(r"\\approx\b|\\simeq\b|\\sim\b", answer)
    wanted = number(gold)
    sides = sides if wanted and wanted.rounded else sides[:1]
    return [_sides(side)[-1].strip() for side in sides if side.strip()] or [answer]


def _same_number(gold: Atom, answer: Atom, text: str, rules: Rules) -> Same:
    compare = partial(_equal, rules=rules)
    if gold.percent == answer.percent:
        right = compare(gold.text, text)
        return Same(right, "equal" if right else "not equal")
    hundredth = (f"({gold.text})/100", text) if gold.percent else (gold.text, f"({text})/100")
    if compare(*hundredth):
        return Same(True, "equal, a percent being a hundredth")
    if rules.percent and compare(gold.text, text):
        return Same(True, "equal, the percent sign left off")
    return Same(False, "not equal")


def _equal(gold: str, answer: str, rules: Rules) -> bool:
    wanted, given = _plain(gold), _plain(answer)
    if wanted is not None and given is not None:
        return _numbers_equal(wanted, given, rules)
    return algebra.equal(gold, answer, rules.relative, rules.absolute)


def _plain(text: str) -> Number | None:
    if text.endswith(")/100"):
        inner = number(text[1:-5])
        return None if inner is None else Number(inner.value / 100, inner.rounded)
    return number(text)


def _numbers_equal(gold: Number, answer: Number, rules: Rules) -> bool:
    if gold.value == answer.value:
        return True
    gap = abs(gold.value - answer.value)
    if rules.absolute is not None and gap <= rules.absolute:
        return True
    asked = rules.relative > algebra.ROUNDING
    return (gold.rounded or answer.rounded or asked) and gap <= rules.relative * abs(gold.value)
