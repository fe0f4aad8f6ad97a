"""LaTeX and plain writing of answers, brought to one form: spelling only, no meaning is changed here."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

_UNICODE = {
    "−": "-",
    "–": "-",
    "·": r"\cdot ",
    "×": r"\times ",
    "÷": "/",
    "⁄": "/",
    "±": r"\pm ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≈": r"\approx ",
    "∈": r"\in ",
    "∪": r"\cup ",
    "∞": r"\infty ",
    "°": r"^{\circ}",
    "π": r"\pi ",
    "θ": r"\theta ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "½": r"\frac{1}{2}",
    "≠": r"\ne ",
    "∅": r"\emptyset ",
    "ℝ": r"\mathbb{R}",
    "\u00a0": " ",
    "\u2009": " ",
}
_UNICODE_SIGN = re.compile("[" + "".join(_UNICODE) + "]")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\d+(?:\.\d+)?|[a-zA-Z]))")
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp"

_SPELLINGS = [
    (re.compile(p), r)
    for p, r in (
        (r"(?<!\\)(?:\$|\\[()\[\]])", " "),  # mathematics around or inside the answer
        (r"\*\*|\\displaystyle|\\textstyle|\\limits", " "),
        (r"\\(?:left|right|m?middle|[bB]igg?[lrm]?)\s*(?=[(\[\])|.]|\\[{}|a-zA-Z])\.?", ""),
        (r"^\s*[(\[]\s*(\\begin\{(?:array|matrix)\}.*\\end\{(?:array|matrix)\})\s*[)\]]\s*$", r"\1"),
        (r"\\l?r?brace\b", lambda m: r"\{" if "l" in m.group() else r"\}"),
        (r"\\(?:[dtc]|nice|s)frac\b", r"\\frac"),
        (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
        (r"\\binom\s*(\d)\s*(\d)(?!\d)", r"\\binom{\1}{\2}"),
        (r"\\math(?:rm|bf|it|sf)\s*\{\s*([ei])\s*\}", r"{\1}"),  # numbers; other upright letters are units
        (rf"\\(?:operatorname|mathrm)\s*\{{\s*({_FUNCTIONS})\s*\}}", r"\\\1 "),
        (rf"(?<![a-zA-Z\\{{])(?:(?:{_FUNCTIONS})(?=\s*[(_])|pi(?![a-zA-Z]))", lambda m: rf"\{m.group()} "),
        (r"\\log\s*_\s*(?:e(?![a-zA-Z])|\{\s*e\s*\})", r"\\ln "),
        (r"(?<=\d)(?:\{,\}|,?\\!,?\\?!?\s*,?)\s*(?=\d{3}(?!\d))", ""),  # 10,\!080 and 10{,}080: always one number
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[,;:> ]|~|\\q?quad\b|\\thinspace", " "),
        (r"\\(?:leq|leqslant|leqq)(?![a-zA-Z])", r"\\le"),
        (r"\\(?:geq|geqslant|geqq)(?![a-zA-Z])", r"\\ge"),
        (r"<=", r"\\le "),
        (r">=", r"\\ge "),
        (r"\\neq\b|\\not\s*=|(?<=[a-zA-Z])\s+!=", r"\\ne "),  # 5!=120 is a factorial
        (r"(\\(?:[lg]e|ne|pm|mp|cdot|times|cup|approx))(?=\d)", r"\1 "),
        (r"\\lt\b", "<"),
        (r"\\gt\b", ">"),
        (r"(?<!\\)\binfinity\b|\\infin\b", r"\\infty"),
        (r"\\(?:text(?:bf|it|rm|normal|sf)|[mh]box|math(?:rm|bf|it|sf)|operatorname)\s*\{", r"\\text{"),
        (r"\\text\s*\{\s*\}", ""),
        (r",?\s*\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|,?\s*(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])", ","),
        (r"\\(?:boldsymbol|bm|color\s*\{\w+\}|phantom\s*\{[^{}]*\})(?![a-zA-Z])|(?:\s*\\\\)+\s*$", ""),
        (r"\\text\s*\{\s*(\(?[-+\d.,/\s]+\)?)\s*\}", r"\1"),
        (r"^\s*\\text\s*\{([^{}]*\d[^{}]*)\}\s*$", r"\1"),
        (r"\\%", "%"),
        (r"\s*\\text\s*\{\s*(?:percent|per cent|%)\s*\}|(?<=[\d}])\s*\bpercent\b", "%"),
        (r"\\dots\b|\\ldots\b|\\cdots\b", "..."),
        (r"\s+", " "),
    )
]  # fmt: skip


def spell(text: str) -> str:
    """Return the answer in one spelling: no dollars, sizes or spacing commands, one name for each relation and text."""
    text = (
        re.split(r"(?:,|\\text\s*\{,?)?\s*(?<![a-zA-Z\\])where\b", text, maxsplit=1)[0] or text
    )  # conditions on parameters
    text = re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^{" + m.group().translate(_RAISED) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda m: "_{" + m.group().translate(_LOWERED) + "}", text)
    text = _ROOT.sub(lambda m: r"\sqrt{" + (m.group(1) or m.group(2)) + "}", text)
    text = _UNICODE_SIGN.sub(lambda m: _UNICODE[m.group()], text)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return text.strip().rstrip(".,;:").strip()


def squeeze(text: str) -> str:
    """Return the spelling without spaces and without braces round single characters, for literal comparison."""
    return re.sub(r"\{(\w)\}", r"\1", re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text))


_OPEN, _CLOSE = "([{", ")]}"


def split_top(text: str, separators: str = ",;") -> list[str]:
    """Return the parts of the text between separators that stand outside every bracket."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        c = text[i]
        if c == "\\":
            name = re.match(r"\\(?:[a-zA-Z]+|.)", text[i:])
            token = name.group() if name else c
            depth += {r"\{": 1, r"\langle": 1, r"\begin": 1, r"\}": -1, r"\rangle": -1, r"\end": -1}.get(token, 0)
            i += len(token)
            continue
        depth += (c in _OPEN) - (c in _CLOSE)
        if depth <= 0 and c in separators:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def depth(text: str) -> int:
    """Return how deep brackets of any kind are nested."""
    deepest = level = 0
    for c in text:
        level += (c in _OPEN) - (c in _CLOSE)
        deepest = max(deepest, level)
    return deepest


class Number(NamedTuple):
    """A number as it was written."""

    value: Fraction
    rounded: bool
    """Written with a decimal point or an exponent: it may stand for a value near it."""


_DIGITS = r"(?:\d+\.?\d*|\.\d+)"
_FLOAT = re.compile(rf"([-+]?){_DIGITS}(?:[eE][-+]?\d{{1,4}})?")
_TEN = re.compile(rf"([-+]?{_DIGITS})(?:\\times|\\cdot|\*|x)10\^(?:\{{([-+]?\d{{1,4}})\}}|([-+]?\d{{1,4}}))")
_FRAC = re.compile(
    r"([-+]?)(\d*)(?:\\frac(?:\{([-+]?\d+)\}|(\d))(?:\{([-+]?\d+)\}|(\d))|(?<=\d)\.?/([-+]?\d+)|(?<!\d)(\d+)\.?/(\d+))"
)
_MIXED_PLAIN = re.compile(r"([-+]?)(\d+) (\d+)/(\d+)")
_REPEATING = re.compile(r"([-+]?)(\d*)\.(\d*)\\(?:overline|bar)\{(\d+)\}")
MAX_DIGITS = 3000


def number(text: str) -> Number | None:
    """Return the number that the text is, exactly; None where it is no plain number, fraction or power of ten."""
    if len(text) > MAX_DIGITS:
        return None
    if mixed := _MIXED_PLAIN.fullmatch(text.strip()):
        sign, whole, top, bottom = mixed.groups()
        return _signed(sign, Fraction(whole), top, bottom)
    if re.search(r"\d\s+\d", text) and not re.fullmatch(r"[-+]?\d{1,3}(?:\s\d{3})+", text):
        return None
    compact = re.sub(r"\s+", "", text)
    compact = compact[1:-1] if re.fullmatch(r"\([-+]?[\d.]+\)|\{[-+]?[\d.]+\}", compact) else compact
    if _FLOAT.fullmatch(compact):
        return Number(
            Fraction(compact.rstrip(".")) if "e" not in compact.lower() else _exponent(compact), _is_rounded(compact)
        )
    if ten := _TEN.fullmatch(compact):
        return Number(Fraction(ten[1].rstrip(".")) * Fraction(10) ** int(ten[2] or ten[3]), True)
    if repeating := _REPEATING.fullmatch(compact):
        sign, whole, fixed, period = repeating.groups()
        first, scale = Fraction(f"{whole or 0}.{fixed or 0}"), Fraction(10) ** len(fixed)
        value = first + Fraction(int(period), 10 ** len(period) - 1) / scale
        return Number(-value if sign == "-" else value, False)
    if frac := _FRAC.fullmatch(compact):
        sign, whole, a, a1, b, b1, slash, top, bottom = frac.groups()
        if slash:
            return _signed(sign, Fraction(0), whole, slash)
        return _signed(sign, Fraction(whole or 0), a or a1 or top, b or b1 or bottom)
    return None


def _is_rounded(text: str) -> bool:
    return "." in text.rstrip(".") or "e" in text.lower()


def _exponent(text: str) -> Fraction:
    mantissa, _, power = text.lower().partition("e")
    return Fraction(mantissa.rstrip(".")) * Fraction(10) ** int(power)


def _signed(sign: str, whole: Fraction, top: str, bottom: str) -> Number | None:
    if not int(bottom):
        return None
    value = whole + Fraction(int(top), int(bottom))
    return Number(-value if sign == "-" else value, False)
