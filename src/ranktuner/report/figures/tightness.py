"""Tightness: how close the bounds come to the true ranks, and whether any token breaks one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ranktuner.findings import Finding
from ranktuner.report.figures.base import (
    CELL,
    Figure,
    Panel,
    Row,
    Table,
    altair,
    columns,
    data,
    grid_rows,
    panel,
    safe_id,
    shaded,
)
from ranktuner.report.figures.theme import ramp, var
from ranktuner.report.writing import num, sentence

_STEPS = [1, 3, 10, 30, 100, 300, 1000, 3000, 10000]


def figures(finding: Finding) -> list[Figure]:
    """Return, for each set: the two error histograms, and R against p and E[R] against H with their envelopes."""
    numbers = finding.numbers
    made = []
    for one in numbers["sets"]:
        made += [_planes(one, numbers["envelopes"]), _histograms(one)]
    return made


def _planes(one: Mapping[str, Any], envelopes: Mapping[str, Any]) -> Figure:
    broken = sum(bound["violations"] for bound in one["bounds"])
    verdict = (
        "No token breaks a bound."
        if not broken
        else "Some tokens break a bound: see the table; this should not happen."
    )
    caption = sentence(
        "Every token lies under the curve p = 1/R and above the curve E[R] = s(H): rank and expected rank can be "
        "bounded from probability and entropy alone. {} ({} tokens of {}.)",
        verdict,
        num(one["tokens"], "count"),
        one["name"],
    )
    rank_p, entropy_rank = envelopes["rank_p"], envelopes["entropy_expected_rank"]
    left = _plane(
        one["rank_p"],
        one["points"].get("rank", []),
        one["points"].get("p", []),
        [columns(x=rank_p["rank"], y=rank_p["p"])],
        "rank R",
        "probability p",
        log_x=True,
    )
    curves = [
        columns(x=entropy_rank["entropy_bits"], y=entropy_rank[side])
        for side in ("lower", "upper")
        if entropy_rank.get(side)
    ]
    right = _plane(
        one["entropy_expected_rank"],
        one["points"].get("entropy_bits", []),
        one["points"].get("expected_rank", []),
        curves,
        "entropy H (bits)",
        "expected rank E[R]",
        log_y=True,
    )
    return Figure(
        id=safe_id("tightness", one["name"]),
        title=f"Bounds on {one['name']}",
        caption=caption,
        panels=[panel("R and p", left, 300, 240), panel("E[R] and H", right, 300, 240)],
        table=_bounds(one["bounds"]),
        height=300,
        note=Markup("Shades count tokens, dots are single tokens, the line is the bound. Large ranks share a column."),
    )


def _plane(
    grid: Mapping[str, Any],
    xs: Sequence[float],
    ys: Sequence[float],
    curves: Sequence[list[Row]],
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Any:
    alt = altair()
    x_edges, y_edges = grid["x_edges"], grid["y_edges"]
    # The bounds go on for ever; the plane ends where the tokens do.
    x_scale = alt.Scale(type="log" if log_x else "linear", nice=False, domain=[x_edges[0], x_edges[-1]])
    y_scale = alt.Scale(type="log" if log_y else "linear", nice=False, domain=[y_edges[0], y_edges[-1]])
    cells = grid_rows(x_edges, y_edges, grid["counts"])
    x_axis, y_axis = (alt.Axis(format="~s", tickCount=5, grid=False) for _ in "xy")
    chart = alt.Chart(data(cells))
    # A rank is a whole number: a cell as wide as its bin would reach over the bound that all its tokens keep.
    marks = chart.mark_bar(size=5) if log_x else chart.mark_rect(**CELL).encode(x2="x2:Q")
    mosaic = marks.encode(
        x=alt.X("x:Q", title=x_title, scale=x_scale, axis=x_axis),
        y=alt.Y("y:Q", title=y_title, scale=y_scale, axis=y_axis),
        y2="y2:Q",
        **shaded("count:Q", "tokens", _STEPS, ramp("h")),
        tooltip=[
            alt.Tooltip("count:Q", title="tokens", format=","),
            alt.Tooltip("x:Q", title=x_title, format=".3~g"),
            alt.Tooltip("y:Q", title=y_title, format=".3~g"),
        ],
    )
    dots = (
        alt.Chart(data(columns(x=xs, y=ys)))
        .mark_circle(size=7, color=var("ink"), opacity=0.35)
        .encode(x="x:Q", y="y:Q")
    )
    lines = [
        alt.Chart(data(curve)).mark_line(color=var("c2"), strokeWidth=2, clip=True).encode(x="x:Q", y="y:Q")
        for curve in curves
    ]
    return alt.layer(mosaic, dots, *lines)


def _histograms(one: Mapping[str, Any]) -> Figure:
    caption = sentence(
        "How much is lost by using the bound instead of the true rank. Half of the tokens lose at most {} on the rank "
        "and {} on the expected rank.",
        *(num(gap["median"]) for gap in one["gaps"]),
    )
    head = ["gap", "mean", "median", "standard deviation", "P80", "P90", "smallest", "largest"]
    rows = [
        [gap["label"], *(num(gap[key]) for key in ("mean", "median", "std", "p80", "p90", "min", "max"))]
        for gap in one["gaps"]
    ]
    return Figure(
        id=safe_id("gaps", one["name"]),
        title=f"Gaps on {one['name']}",
        caption=caption,
        panels=[_histogram(gap) for gap in one["gaps"]],
        table=Table(head, rows),
        height=200,
    )


def _histogram(gap: Mapping[str, Any]) -> Panel:
    alt = altair()
    edges, counts = gap["histogram"]["edges"], gap["histogram"]["counts"]
    rows = columns(x=edges[:-1], x2=edges[1:], count=counts)
    bars = (
        alt.Chart(data(rows))
        .mark_bar(color=var("c0"), opacity=0.85, stroke=var("paper"), strokeWidth=0.5)
        .encode(
            x=alt.X("x:Q", title=gap["label"], bin="binned"),
            x2="x2:Q",
            y=alt.Y(
                "count:Q",
                title="tokens (log scale)",
                scale=alt.Scale(type="symlog", constant=10),
                axis=alt.Axis(format=",d", values=[0, 10, 100, 1000, 10000, 100000, 1000000]),
            ),
            tooltip=[
                alt.Tooltip("x:Q", title="from"),
                alt.Tooltip("x2:Q", title="to"),
                alt.Tooltip("count:Q", title="tokens", format=","),
            ],
        )
    )
    marks = alt.Chart(data([{"x": gap[key], "name": name} for key, name in (("median", "median"), ("p90", "P90"))]))
    rules = marks.mark_rule(strokeDash=[4, 3], color=var("ink-2")).encode(
        x="x:Q", tooltip=["name:N", alt.Tooltip("x:Q", format=".3~g")]
    )
    words = marks.mark_text(align="left", dx=4, dy=-2, baseline="top", y=0).encode(x="x:Q", text="name:N")
    return panel(gap["label"], alt.layer(bars, rules, words))


def _bounds(bounds: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            bound["name"],
            num(bound["tokens"], "count"),
            num(bound["violations"], "count"),
            num(bound["worst"]),
            num(bound["tolerance"]),
        ]
        for bound in bounds
    ]
    return Table(["bound", "tokens", "violations", "worst overshoot", "rounding allowed"], rows)
