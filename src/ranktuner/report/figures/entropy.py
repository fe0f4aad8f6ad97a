"""Inference entropy: how sure a trained model is while it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ranktuner.findings import Finding
from ranktuner.report.figures.base import Figure, Key, Panel, Table, altair, columns, data, name_channels, panel
from ranktuner.report.figures.theme import slots, var
from ranktuner.report.writing import interval, num, sentence


def figures(finding: Finding) -> list[Figure]:
    """Return mean entropy and share of open tokens as bars, and the distribution over tokens."""
    models = finding.numbers["models"]
    names = [model["name"] for model in models]
    caption = sentence(
        "Entropy of the model’s own prediction at each token it wrote, over {} runs at temperature {}. Bars carry the "
        "interval.",
        num(finding.protocol.get("runs"), "exact"),
        num(finding.protocol.get("temperature"), "exact"),
    )
    panels = [
        _bars(models, "entropy_bits", "mean entropy (bits)", "~g"),
        _bars(models, "high_share", "share of tokens with H ≥ 2 bits", "%"),
        _distribution(models),
    ]
    key = Key(slots(names))
    return [
        Figure(
            "inference-entropy", "Entropy while writing", caption, panels, _table(models), key, columns=3, height=200
        )
    ]


def _bars(models: Sequence[Mapping[str, Any]], field: str, title: str, style: str) -> Panel:
    alt = altair()
    rows = [
        {"name": m["name"], **{k: m[field][k] for k in ("mean", "low", "high")}}
        for m in models
        if m[field]["mean"] is not None
    ]
    channels = name_channels([m["name"] for m in models])
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "name:N",
            title=None,
            sort=[m["name"] for m in models],
            axis=alt.Axis(labelAngle=0, labelLimit=max(40, 220 // len(models))),
        )
    )
    y = alt.Y("mean:Q", title=None, axis=alt.Axis(format=style, tickCount=4), scale=alt.Scale(domainMin=0))
    tips = ["name:N", *(alt.Tooltip(f"{k}:Q", format=".3~g") for k in ("mean", "low", "high"))]
    bars = base.mark_bar(width={"band": 0.5}, cornerRadiusEnd=2).encode(y=y, color=channels["color"], tooltip=tips)
    whisker = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.6, color=var("ink"))
        .encode(y="low:Q", y2="high:Q")
    )
    return panel(title, alt.layer(bars, whisker), 200, 180)


def _distribution(models: Sequence[Mapping[str, Any]]) -> Panel:
    alt = altair()
    rows = [
        {**row, "name": model["name"]}
        for model in models
        for row in columns(x=model["histogram"]["edges"][:-1], count=model["histogram"]["counts"])
    ]
    lines = (
        alt.Chart(data(rows))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("x:Q", title="entropy H (bits)"),
            y=alt.Y(
                "count:Q",
                title="tokens (log scale)",
                scale=alt.Scale(type="symlog", constant=10),
                axis=alt.Axis(format=",d", values=[0, 10, 100, 1000, 10000, 100000, 1000000]),
            ),
            **name_channels([m["name"] for m in models]),
            tooltip=["name:N", alt.Tooltip("x:Q", title="H from"), alt.Tooltip("count:Q", title="tokens", format=",")],
        )
    )
    return panel("all tokens", lines, 240, 180)


def _table(models: Sequence[Mapping[str, Any]]) -> Table:
    head = ["model", "mean entropy (bits)", "H ≥ 2 bits", "NLL of its own text", "samples", "tokens", "cut off"]
    rows = []
    for model in models:
        entropy, high, nll = model["entropy_bits"], model["high_share"], model["nll"]
        rows.append(
            [
                model["name"],
                num(entropy["mean"]) + " " + interval(entropy["low"], entropy["high"]),
                num(high["mean"], "percent") + " " + interval(high["low"], high["high"], "percent"),
                num(nll["mean"]),
                num(model["samples"], "count"),
                num(model["tokens"], "count"),
                num(model["truncated"], "count"),
            ]
        )
    return Table(head, rows)
