"""Regimes: where the tokens lie on either side of H = 2 bits, and where each method puts its weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ranktuner.findings import Finding
from ranktuner.report.figures.base import Figure, Panel, Row, Table, altair, data, panel, safe_id
from ranktuner.report.figures.theme import ramp, var
from ranktuner.report.writing import num, sentence

QUADRANTS = ("sure and right", "unsure and right", "sure and wrong", "unsure and wrong")


def figures(finding: Finding) -> list[Figure]:
    """Return the shares of both regimes over all sets, and the four quadrants of each set."""
    numbers = finding.numbers
    made = [_shares(numbers)]
    made += [_quadrants(one, numbers, place == 0) for place, one in enumerate(numbers["sets"]) if one.get("quadrants")]
    return made


def _shares(numbers: Mapping[str, Any]) -> Figure:
    caption = sentence(
        "The part of the tokens, of the loss and of each method’s weight that lies in open contexts (H ≥ {} bits). A "
        "method whose bar is shorter than the tokens’ leans on what the model is sure of.",
        num(numbers["border_bits"], "exact"),
    )
    return Figure(
        id="regimes",
        title="Sure and open contexts",
        caption=caption,
        panels=[_bars(one) for one in numbers["sets"]],
        table=_table(numbers["sets"]),
        height=200,
        columns=min(3, max(2, len(numbers["sets"]))),
    )


def _bars(one: Mapping[str, Any]) -> Panel:
    alt = altair()
    rows: list[Row] = [
        {"name": "tokens", "share": one["high"]["tokens"], "what": "data"},
        {"name": "loss (nll)", "share": one["high"]["nll"], "what": "data"},
    ]
    rows += [
        {"name": w["method"], "share": w["high"], "what": "weight"} for w in one["weights"] if w["high"] is not None
    ]
    order = [row["name"] for row in rows]
    scale = alt.Scale(domain=["data", "weight"], range=[var("c1"), var("c0")])
    bars = (
        alt.Chart(data(rows))
        .mark_bar(height={"band": 0.6}, cornerRadiusEnd=2, opacity=0.85)
        .encode(
            y=alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=150)),
            x=alt.X(
                "share:Q",
                title="share at H ≥ 2 bits",
                axis=alt.Axis(format="%", tickCount=4, grid=True),
                scale=alt.Scale(domainMin=0),
            ),
            color=alt.Color("what:N", scale=scale, legend=None),
            tooltip=[alt.Tooltip("name:N", title="of"), alt.Tooltip("share:Q", format=".1%")],
        )
    )
    return panel(one["name"], bars, height=24 * len(rows) + 20)


def _table(sets: Sequence[Mapping[str, Any]]) -> Table:
    head = ["set", "of", "sure (H < 2)", "open (H ≥ 2)", "mean weight, sure", "mean weight, open", "effective tokens"]
    rows: list[list[Any]] = []
    for one in sets:
        name = sentence("{} ({} tokens)", one["name"], num(one["tokens"], "count"))
        rows += [
            [name, what, num(one["low"][key], "percent"), num(one["high"][key], "percent"), "", "", ""]
            for what, key in (("tokens", "tokens"), ("loss", "nll"))
        ]
        rows += [
            [
                name,
                w["method"],
                num(w["low"], "percent"),
                num(w["high"], "percent"),
                num(w["mean_low"]),
                num(w["mean_high"]),
                num(w["effective_tokens"], "percent"),
            ]
            for w in one["weights"]
        ]
    return Table(head, rows)


def _quadrants(one: Mapping[str, Any], numbers: Mapping[str, Any], first: bool) -> Figure:
    methods = list(one["quadrants"][0]["weights"])
    cells = {"tokens": {q["name"]: q["tokens"] for q in one["quadrants"]}}
    cells |= {method: {q["name"]: q["weights"].get(method) for q in one["quadrants"]} for method in methods}
    caption = sentence(
        "The (p, H) plane cut at p = {} and H = {} bits. The first square holds the tokens, the others hold each "
        "method’s weight: compare them to see what a method prefers. “Sure and wrong” is where a label contradicts a "
        "confident model.",
        num(numbers["border_p"], "exact"),
        num(numbers["border_bits"], "exact"),
    )
    rows = [[name, *(num(cells[what][name], "percent") for what in cells)] for name in QUADRANTS]
    return Figure(
        id=safe_id("quadrants", one["name"]),
        title=f"Four regimes of {one['name']}",
        caption=caption if first else Markup("The same for this set."),
        panels=[_square(what, shares) for what, shares in cells.items()],
        table=Table(["regime", *cells], rows),
        columns=4,
        height=170,
    )


def _square(title: str, shares: Mapping[str, float | None]) -> Panel:
    alt = altair()
    rows = [
        {"entropy": name.split(" and ")[0], "label": name.split(" and ")[1], "share": share, "name": name}
        for name, share in shares.items()
    ]
    shade = alt.Scale(type="threshold", domain=[0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8], range=ramp("q"))
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "entropy:N", sort=["sure", "unsure"], title=None, axis=alt.Axis(labelAngle=0, domain=False, ticks=False)
        ),
        y=alt.Y("label:N", sort=["right", "wrong"], title=None, axis=alt.Axis(domain=False, ticks=False)),
    )
    tiles = base.mark_rect(stroke=var("paper"), strokeWidth=3).encode(
        color=alt.Color("share:Q", scale=shade, legend=None),
        tooltip=[alt.Tooltip("name:N", title="regime"), alt.Tooltip("share:Q", format=".2%")],
    )
    words = base.mark_text(color=var("ink"), fontSize=13).encode(text=alt.Text("share:Q", format=".1%"))
    return panel(title, alt.layer(tiles, words), 150, 150)
