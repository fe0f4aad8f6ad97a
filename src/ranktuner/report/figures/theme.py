"""The look of every figure: one palette for page and paper, and the Vega-Lite configuration.

A specification names its colours as CSS variables (`var(--c0)`). On the page the browser resolves them, so switching
between light and dark redraws nothing; for paper `resolve` writes the light values into the specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_Q = (
    ["#fbfaf6", "#f7f0e0", "#f4e6ca", "#f3dab5", "#f2cea1", "#f3c18d", "#f4b37a", "#f5a469", "#f6955a", "#f6844e"],
    ["#1b1916", "#251f16", "#302514", "#3c2a12", "#492e10", "#57320e", "#65360c", "#74390d", "#833b10", "#923d17"],
)
_D = (
    ["#f7945a", "#f7b17d", "#f7cca3", "#f8e4cc", "#fcfaf6", "#dbe9fb", "#bdd8f7", "#9fc7f3", "#7fb6ee"],
    ["#8c3d12", "#6c370d", "#4e2f11", "#322515", "#1b1917", "#1d2937", "#223855", "#264873", "#285994"],
)
_H = (
    ["#ebf6f9", "#cde0e8", "#b0cad7", "#94b4c8", "#7a9eb8", "#6288aa", "#4b729b", "#375d8c", "#26467d", "#19306d"],
    ["#1d222b", "#2b3442", "#394759", "#475c71", "#54728a", "#6189a3", "#6ea1bc", "#7bbad4", "#88d3ec", "#95eeff"],
)
_V = (
    ["#a14206", "#b77344", "#cba07a", "#dfcbb4", "#f7f5f1", "#b9cae0", "#829fc7", "#4d75ad", "#174a92"],
    ["#ed914c", "#b2753c", "#7c5831", "#4b3b27", "#201f1d", "#33404f", "#496381", "#5e88b6", "#73b0ee"],
)
_C = (
    ["#2257a8", "#6b7280", "#b8500f", "#0b7a68", "#8a4a9c", "#8f6400", "#2580ad", "#ab3558"],
    ["#86b4ff", "#a5abb7", "#ff9f5c", "#4fcbb1", "#d59ae8", "#dfb94f", "#70c9f2", "#f48ba9"],
)

PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#fcfbf8", "#131518"),
    "panel": ("#ffffff", "#1a1d22"),
    "ink": ("#1c1e22", "#e9e7e2"),
    "ink-2": ("#555a64", "#a9aeb8"),
    "rule": ("#e3e0d8", "#2d3138"),
    "rule-2": ("#b9b5aa", "#565c66"),
    "accent": ("#2257a8", "#86b4ff"),
    "good": ("#0b6b58", "#4fcbb1"),
    "bad": ("#a8420a", "#ff9f5c"),
    **{
        f"{letter}{i}": pair
        for letter, ramp in (("c", _C), ("q", _Q), ("d", _D), ("h", _H), ("v", _V))
        for i, pair in enumerate(zip(*ramp, strict=True))
    },
}
"""Name -> (light, dark). `c`: categories; `q`: highlighter behind text (ink stays readable on it); `d`: the same,
two-sided, orange for less and blue for more than the neutral middle; `h` and `v`: one- and two-sided ramps for maps.
Orange and blue, and ramps of steady lightness, stay apart under the common colour blindnesses; categories also differ
in dash and point."""

DASHES: list[list[int]] = [[1, 0], [2, 2], [6, 3], [8, 3, 2, 3], [4, 2], [10, 4], [1, 3], [6, 2, 2, 2]]
SHAPES: list[str] = [
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
]

SANS = 'Inter, "Inter Variable", system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def var(name: str) -> str:
    """Return the colour `name` as a specification writes it."""
    assert name in PALETTE, name
    return f"var(--{name})"


def ramp(letter: str) -> list[str]:
    """Return all steps of one ramp of the palette, in order."""
    return [var(name) for name in PALETTE if re.fullmatch(rf"{letter}\d", name)]


def css_variables() -> str:
    """Return the palette as CSS declarations that follow the page's colour scheme."""
    return "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in PALETTE.items())


def resolve(spec: Any, dark: bool = False) -> Any:
    """Return the specification with every `var(--name)` written out, for SVG and PDF."""
    if isinstance(spec, str):
        return re.sub(r"var\(--([a-z0-9-]+)\)", lambda m: PALETTE[m[1]][dark], spec)
    if isinstance(spec, Mapping):
        return {key: resolve(value, dark) for key, value in spec.items()}
    return [resolve(value, dark) for value in spec] if isinstance(spec, list) else spec


_FAVOURED = ("ranktuner", "sft", "dft", "eaft", "talr", "overtone", "relative-rank", "alpha-power")


def slots(names: Sequence[str]) -> dict[str, int]:
    """Return a place in the categorical palette for each name: known methods keep theirs on every page.

    RankTuner is the accent blue and plain SFT grey wherever they appear; two variants of one method get two places.
    """
    taken: dict[str, int] = {}
    late = []
    for name in dict.fromkeys(names):
        base = re.match(r"[a-z-]*", name.lower())
        place = _FAVOURED.index(base[0]) if base and base[0] in _FAVOURED else None
        if place is None or place in taken.values():
            late.append(name)
        else:
            taken[name] = place
    for name in late:
        # Grey means plain SFT to whoever has seen one of these pages: it is given away last.
        free = sorted((i for i in range(len(_C[0])) if i not in taken.values()), key=lambda i: i == 1)
        taken[name] = free[0] if free else len(taken) % len(_C[0])
    return {name: taken[name] for name in names}


CONFIG: dict[str, Any] = {
    # The page gives each figure one name and a table; labels on thousands of marks would be noise to a screen reader.
    "aria": False,
    "background": "transparent",
    "font": SANS,
    "view": {"stroke": None},
    "axis": {
        "labelColor": var("ink-2"),
        "titleColor": var("ink-2"),
        "gridColor": var("rule"),
        "domainColor": var("rule-2"),
        "tickColor": var("rule-2"),
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 4,
        "tickSize": 4,
        "labelFont": SANS,
        "titleFont": SANS,
        "labelOverlap": True,
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "labelColor": var("ink-2"),
        "titleColor": var("ink-2"),
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "symbolStrokeWidth": 2,
        "symbolSize": 180,
        "orient": "top",
        "labelFont": SANS,
        "titleFont": SANS,
        "labelLimit": 320,
    },
    "title": {"color": var("ink"), "fontSize": 12, "fontWeight": 600, "anchor": "start", "font": SANS, "offset": 10},
    "text": {"color": var("ink-2"), "font": SANS, "fontSize": 11},
    # Round caps would close the gaps of the dashes that tell the lines apart.
    "line": {"strokeWidth": 1.8, "strokeJoin": "round", "strokeCap": "butt"},
    "point": {"size": 46, "filled": True},
    "rule": {"color": var("rule-2")},
}
"""Vega-Lite's `config`, the same on page and paper."""
