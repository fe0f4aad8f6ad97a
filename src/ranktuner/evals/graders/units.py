"""Units at the end of an answer: taken off, and compared only where both sides have one that is known."""

from __future__ import annotations

import re
from typing import NamedTuple

from ranktuner.evals.graders.latex import number

_NAMES = {
    "m": "m meter meters metre metres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "km": "km kilometer kilometers kilometre kilometres",
    "nm": "nm nanometer nanometers",
    "inch": "in inch inches",
    "foot": "ft foot feet",
    "yard": "yd yard yards",
    "mile": "mi mile miles",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "mg": "mg milligram milligrams",
    "pound": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "dollar": "dollar dollars usd",
    "cent": "cent cents",
    "degree": "degree degrees deg",
    "radian": "rad radian radians",
    "liter": "l liter liters litre litres",
    "ml": "ml milliliter milliliters millilitre millilitres",
    "ev": "ev",
    "joule": "j joule joules",
    "volt": "v volt volts",
    "newton": "n newton newtons",
    "watt": "w watt watts",
    "hz": "hz hertz",
    "k": "k kelvin",
}
KNOWN = {alias: name for name, aliases in _NAMES.items() for alias in aliases.split()}
"""Alias -> one name. There is no conversion: 100 cm is not taken for 1 m."""

_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}

_TEX = (
    r"(?:\\text\s*\{(?:[^{}\d]|(?<=\^)\d|(?<=[a-z])[23])*\}|\^\s*\{?\s*\\circ\s*\}?(?:\s*[CF](?![a-zA-Z]))?|\\degree(?:s)?\b|\\AA\b|\\mu\b|\\Omega\b)"
    r"(?:\s*\^\s*(?:\{\s*-?\d+\s*\}|\d))?"
)
_TRAILING_TEX = re.compile(rf"(?:\s*(?:/|\\cdot|\\times)?\s*(?:\\AA|{_TEX}))+\s*$")
_TRAILING_WORDS = re.compile(
    r"(?<=[\d})\]%])(?:\s+[A-Za-z][A-Za-z.]*(?:\^\{?-?\d\}?)?(?:\s*/\s*[A-Za-z]+(?:\^\{?-?\d\}?)?)?)+$"
    r"|(?<=\d)(?:cm|mm|km|nm|kg|mg|ft|in|lbs?|oz|mph|[mgs])(?:\^\{?\d\}?)?$"
)


_ORDINAL = re.compile(r"(?<=\d)\s*(?:\^\s*)?\{?\s*(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?$")


class Split(NamedTuple):
    """An answer and the unit that stood behind it."""

    core: str
    unit: str | None
    """In one form where it is known, else None."""


def strip_units(text: str, *, words: bool) -> Split:
    """Return the answer without the unit behind it (and the currency before it).

    Args:
        text: a spelled answer (see `latex.spell`).
        words: plain words count as units too ("5 cm", "12 apples"); false where the gold has variables, since "6 m" may
            be six times m.

    Returns:
        what is left, and the unit where it is a known one.
    """
    core, unit = re.sub(r"\\\$|[€£¥]", "", text).strip(), "dollar" if r"\$" in text else None
    core = _ORDINAL.sub("", core)
    for pattern in (_TRAILING_TEX, _TRAILING_WORDS) if words else (_TRAILING_TEX,):
        match = pattern.search(core)
        if match and _is_value(core[: match.start()], match.group()):
            unit = canonical(match.group()) or unit
            core = core[: match.start()].strip()
    return Split(core, unit)


_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sum|int|lim|prod)|[-+*/^_=(,]\s*$")


def _is_value(core: str, unit: str) -> bool:
    """Return whether a value is left when the unit is taken off: not so in `\\cos^2 x` and `2 + \\text{m}`."""
    if not core.strip() or _FUNCTION.search(core):
        return False
    return len(unit.strip()) > 1 or number(core) is not None


def canonical(unit: str) -> str | None:
    """Return the unit in one form (`cm^2`, `km/hour`), or None where a part of it is not in the table."""
    if "\\circ" in unit or "\\degree" in unit:
        return "degree" if not re.search(r"[CF]", unit) else None
    text = re.sub(r"\\text|[{}~.]|\\cdot", " ", unit).lower().replace("mph", "mile/hour").replace(" per ", "/")
    parts = [_one(part) for part in text.split("/")]
    return None if None in parts else "/".join(str(part) for part in parts)


def _one(text: str) -> str | None:
    power, name = 1, None
    words = re.findall(r"[a-z]+|\^?\s*-?\d+", text)
    for word in words:
        if word in _POWERS:
            power = _POWERS[word]
        elif word.strip(" ^-").isdigit():
            power = int(word.replace("^", "").replace(" ", ""))
        elif word in KNOWN and name is None:
            name = KNOWN[word]
        else:
            return None
    if name is None:
        return None
    return name if power == 1 else f"{name}^{power}"
