"""The indicator I over rank and expected rank, as a map: orange where a label ranks worse than the model expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from ranktuner.findings import Finding
from ranktuner.report.figures.base import CELL, Figure, Panel, Row, altair, data, panel, shaded
from ranktuner.report.figures.theme import ramp, var

_STEPS = [0.6, 0.7, 0.8, 0.95, 1.05, 1.25, 1.45, 1.65]


def figures(finding: Finding) -> list[Figure]:
    """Return the default pair as a large map and the others as small ones."""
    numbers = finding.numbers
    first, *others = numbers["surfaces"]
    made = [
        Figure(
            id="surface",
            title="The indicator",
            caption=Markup(
                "I compares the label’s rank R with the rank E[R] the model expects. On the diagonal they agree (I = "
                "1). Orange: the label ranks worse than expected, so there is something to learn. Blue: the model "
                "already does better than its own uncertainty suggests."
            ),
            panels=[_map(first, numbers, 320, 280, legend=True)],
            height=380,
            columns=1,
        )
    ]
    if others:
        made.append(
            Figure(
                id="surfaces",
                title="Other pairs (f, g)",
                caption=Markup("The same map for the other shapes that the paper compares."),
                panels=[_map(one, numbers, 190, 170) for one in others],
                columns=3,
                height=230,
                note=Markup("The colours mean the same as above."),
            )
        )
    return made


def _edges(centres: Sequence[float]) -> list[float]:
    """Borders half way between the points of a geometric axis, so that each point has its own cell."""
    between = [(a * b) ** 0.5 for a, b in pairwise(centres)]
    if not between:
        return [centres[0] * 0.9, centres[0] * 1.1]
    return [centres[0] ** 2 / between[0], *between, centres[-1] ** 2 / between[-1]]


def _map(
    surface: Mapping[str, Any], numbers: Mapping[str, Any], width: int, height: int, legend: bool = False
) -> Panel:
    alt = altair()
    ranks, expected = numbers["rank"], numbers["expected_rank"]
    x, y = _edges(ranks), _edges(expected)
    rows: list[Row] = [
        {"R": ranks[i], "E": expected[j], "x": x[i], "x2": x[i + 1], "y": y[j], "y2": y[j + 1], "I": value}
        for i, line in enumerate(surface["indicator"])
        for j, value in enumerate(line)
    ]
    key = alt.Legend(title="indicator I", columns=3, symbolType="square", symbolSize=110) if legend else None
    axis = alt.Axis(format="~s", tickCount=5, grid=False)
    cells = (
        alt.Chart(data(rows))
        .mark_rect(**CELL)
        .encode(
            x=alt.X("x:Q", title="rank R", scale=alt.Scale(type="log", nice=False), axis=axis),
            x2="x2:Q",
            y=alt.Y("y:Q", title="expected rank E[R]", scale=alt.Scale(type="log", nice=False), axis=axis),
            y2="y2:Q",
            **shaded("I:Q", "I", _STEPS, ramp("v"), key),
            tooltip=[
                alt.Tooltip("R:Q", format=".3~g"),
                alt.Tooltip("E:Q", title="E[R]", format=".3~g"),
                alt.Tooltip("I:Q", format=".3~f"),
            ],
        )
    )
    both = [value for value in ranks if expected[0] <= value <= expected[-1]]
    line = alt.Chart(data([{"x": v, "y": v} for v in both])).mark_line(
        strokeDash=[4, 3], color=var("ink-2"), strokeWidth=1
    )
    chart = alt.layer(cells, line.encode(x="x:Q", y="y:Q"))
    return panel(f"f = {surface['f']}, g = {surface['g']}", chart, width, height)
