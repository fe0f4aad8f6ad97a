"""Gradients: the shape of each loss over p, and where on the (p, H) plane each method's gradient goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ranktuner.findings import Finding
from ranktuner.report.figures.base import (
    CELL,
    Figure,
    Panel,
    Table,
    altair,
    columns,
    data,
    grid_rows,
    name_channels,
    panel,
    shaded,
)
from ranktuner.report.figures.regimes import QUADRANTS
from ranktuner.report.figures.theme import DASHES, ramp, var
from ranktuner.report.writing import num, sentence


def figures(finding: Finding) -> list[Figure]:
    """Return the gradient shapes, and the planes where a table of tokens was given."""
    made = [_shapes(finding.numbers["shapes"], finding.protocol.get("shapes"))]
    plane = finding.numbers.get("plane")
    if plane:
        made.append(_planes(plane))
    return made


def _shapes(shapes: list[Mapping[str, Any]], given: str | None) -> Figure:
    """One panel for the weights that look at p alone, and one for each method that looks at H too."""
    alone = [shape for shape in shapes if not shape.get("at")]
    panels = [_lines("weights of p alone", alone, [shape["name"] for shape in alone], {})] if alone else []
    for name in dict.fromkeys(shape["name"] for shape in shapes if shape.get("at")):
        members = [shape for shape in shapes if shape["name"] == name and shape.get("at")]
        labels = [_where(shape["at"]) for shape in members]
        panels.append(_lines(name, members, labels, _shades(labels)))
    return Figure(
        id="gradients",
        title="Gradient shapes",
        caption=Markup(
            "How hard a token of probability p pulls on the model. Plain NLL pulls hardest where the model is most "
            "wrong; weights move that pull to where there is something to learn."
        ),
        panels=panels,
        columns=2 if len(panels) in (1, 2, 4) else 3,
        height=260,
        note=sentence("What p and H leave open: {}.", given) if given else Markup(),
    )


def _where(at: Mapping[str, float]) -> str:
    return ", ".join(
        f"H = {value:g} bits" if key == "entropy_bits" else f"{key} = {value:g}" for key, value in at.items()
    )


def _shades(labels: Sequence[str]) -> dict[str, Any]:
    """Colour and dash of one method at several entropies: a ramp, since they have an order."""
    alt = altair()
    steps = [round(3 + 6 * i / max(1, len(labels) - 1)) for i in range(len(labels))]
    colours = [var(f"h{step}") for step in steps]
    dashes = [DASHES[i % len(DASHES)] for i in range(len(labels))]
    return {
        "color": alt.Color(
            "name:N", title=None, sort=list(labels), scale=alt.Scale(domain=list(labels), range=colours)
        ),
        "strokeDash": alt.StrokeDash("name:N", title=None, scale=alt.Scale(domain=list(labels), range=dashes)),
    }


def _lines(title: str, shapes: list[Mapping[str, Any]], labels: list[str], channels: Mapping[str, Any]) -> Panel:
    alt = altair()
    rows = [
        {**row, "name": label}
        for label, shape in zip(labels, shapes, strict=True)
        for row in columns(p=shape["p"], gradient=shape["gradient"], w=shape["w"])
    ]
    tips = [("p", "p"), ("w", "weight"), ("gradient", "gradient")]
    lines = (
        alt.Chart(data(rows))
        .mark_line()
        .encode(
            x=alt.X(
                "p:Q", title="probability p of the label", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5)
            ),
            y=alt.Y("gradient:Q", title="W(p) = w (1 − p)", axis=alt.Axis(tickCount=5)),
            **(channels or name_channels(labels)),
            tooltip=["name:N", *(alt.Tooltip(f"{field}:Q", title=name, format=".3~g") for field, name in tips)],
        )
    )
    return panel(title, lines, 260, 210)


def _planes(plane: Mapping[str, Any]) -> Figure:
    panels = [_plane("tokens", plane, plane["tokens"])]
    panels += [_plane(method["name"], plane, method["share"]) for method in plane["methods"]]
    rows = [
        [name, *(num(method["quadrants"].get(name), "percent") for method in plane["methods"])] for name in QUADRANTS
    ]
    return Figure(
        id="gradient-plane",
        title="Where the gradient goes",
        caption=Markup(
            "The (p, H) plane with its four regimes. The first map shows the tokens, the others the share of each "
            "method’s gradient that comes from a cell."
        ),
        panels=panels,
        table=Table(["share of the gradient from", *(method["name"] for method in plane["methods"])], rows),
        columns=4 if len(panels) % 3 == 1 else 3,
        height=220,
        note=Markup(
            "The further a cell’s colour is from the page’s, the larger its share. Lines: p = 0.5 and H = 2 bits."
        ),
    )


def _plane(title: str, plane: Mapping[str, Any], shares: list[list[float]]) -> Panel:
    alt = altair()
    cells = grid_rows(plane["p_edges"], plane["entropy_edges"], shares)
    steps = [1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.04, 0.08, 0.16]
    mosaic = (
        alt.Chart(data(cells))
        .mark_rect(**CELL)
        .encode(
            x=alt.X("x:Q", title="probability p", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=5)),
            x2="x2:Q",
            y=alt.Y(
                "y:Q", title="entropy H (bits)", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=5, grid=False)
            ),
            y2="y2:Q",
            **shaded("count:Q", "share", steps, ramp("h")),
            tooltip=[
                alt.Tooltip("x:Q", title="p from", format=".3~g"),
                alt.Tooltip("y:Q", title="H from", format=".3~g"),
                alt.Tooltip("count:Q", title="share", format=".2%"),
            ],
        )
    )
    across = alt.Chart().mark_rule(strokeDash=[4, 3], color=var("ink-2")).encode(y=alt.YDatum(2.0))
    upright = alt.Chart().mark_rule(strokeDash=[4, 3], color=var("ink-2")).encode(x=alt.XDatum(0.5))
    return panel(title, alt.layer(mosaic, across, upright, data=data([{}])), 220, 200)
