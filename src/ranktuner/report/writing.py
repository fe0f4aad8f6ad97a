"""How a number is written, and how text of strangers is made visible and harmless.

Every number of the page is a `<data>` element that carries the exact value of report.json beside its rounded form.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from markupsafe import Markup, escape

Number = float | int | None

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"


def written(value: Number, style: str = "auto") -> str:
    """Return the number as a reader sees it.

    Args:
        value: the number; None is written as a dash.
        style: `auto` (three significant digits), `count` (whole, with separators), `percent` (a share, one decimal),
            `points` (the same without its sign), `difference` (points with plus or minus), `whole-percent`,
            `exact` (as it is).
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if style == "count":
        text = f"{value:,.0f}"
    elif style == "percent":
        text = f"{100 * value:.1f}{THIN}%"
    elif style == "points":
        text = f"{100 * value:.1f}"
    elif style == "difference":
        rounded = round(100 * value, 1)
        text = f"{rounded:+.1f}" if rounded else "0.0"
    elif style == "whole-percent":
        text = f"{100 * value:.0f}{THIN}%"
    elif style == "exact":
        text = f"{value:g}" if isinstance(value, float) else str(value)
    else:
        text = _three_digits(float(value))
    return text.replace("-", MINUS)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 999.5:
        return f"{value:,.0f}" if size < 1e9 else f"{value:.2e}"
    if size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    # Three significant digits without an exponent; 0.999 stays below 1 and 99.97 becomes 100.
    digits = max(0, 2 - math.floor(math.log10(float(f"{size:.3g}"))))
    return f"{value:.{digits}f}"


def num(value: Number, style: str = "auto") -> Markup:
    """Return the number for the page: `<data value="0.123">12.3 %</data>`."""
    if value is None:
        return Markup('<span class="none">–</span>')
    return Markup('<data value="{}">{}</data>').format(repr(value), written(value, style))


def interval(low: Number, high: Number, style: str = "auto") -> Markup:
    """Return `low – high` for the page, or nothing where there is no interval."""
    if low is None or high is None:
        return Markup("")
    # The sign of a share stands once, at the end; a dash between signed numbers would read as one more sign.
    first = "points" if style == "percent" else style
    to = "to" if style == "difference" else "–"
    return Markup('<span class="interval">{} {} {}</span>').format(num(low, first), to, num(high, style))


def sentence(template: str, *parts: Any) -> Markup:
    """Fill a sentence of ours (trusted markup) with parts: Markup goes in as it is, everything else is escaped."""
    return Markup(template).format(
        *(part if isinstance(part, Markup) else escape(visible(str(part))) for part in parts)
    )


_BIDI = {
    0x061C: "ALM",
    0x200E: "LRM",
    0x200F: "RLM",
    0x202A: "LRE",
    0x202B: "RLE",
    0x202C: "PDF",
    0x202D: "LRO",
    0x202E: "RLO",
    0x2066: "LRI",
    0x2067: "RLI",
    0x2068: "FSI",
    0x2069: "PDI",
}
_PICTURED = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **{code: f"⟨{code:02X}⟩" for code in range(0x80, 0xA0)},
    # Invisible marks that reorder the line after them could change what the page seems to say.
    **{code: f"⟨{name}⟩" for code, name in _BIDI.items()},
    0x200B: "⟨ZWSP⟩",
    0xFEFF: "⟨BOM⟩",
    0x2028: "⟨LS⟩",
    0x2029: "⟨PS⟩",
}
_NEEDS_CARE = re.compile(
    "[" + "".join(re.escape(chr(code)) for code in _PICTURED) + "\ud800-\udfff" + "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return the text with control characters drawn as pictures and lone surrogates replaced.

    Tabs, line feeds, joiners and every ordinary character of any script stay; HTML is not touched: whoever writes the
    text into a page escapes it.
    """
    return _NEEDS_CARE.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code in _PICTURED:
        return _PICTURED[code]
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(match[0]) == "Cs" else f"⟨{code:X}⟩"
