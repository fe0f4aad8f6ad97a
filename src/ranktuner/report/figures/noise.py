"""Noise: which scores point at inserted sentences, and which weights train on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ranktuner.findings import Finding
from ranktuner.report.figures.base import Figure, Panel, Table, altair, data, panel
from ranktuner.report.figures.theme import var
from ranktuner.report.writing import interval, num, sentence

MEASURES = {
    "token_recall": "token recall",
    "token_precision": "token precision",
    "sequence_hit": "sequence hit",
}


def figures(finding: Finding) -> list[Figure]:
    """Return the scores of the paper's noise table, and every method's weight, with intervals over seeds."""
    numbers = finding.numbers
    scores = [score for score in numbers["scores"] if score["kind"] == "score"]
    weights = [score for score in numbers["scores"] if score["kind"] == "weight"]
    chance = numbers.get("chance") or {}
    ratio, top = finding.protocol.get("corruption_ratio"), finding.protocol.get("top")
    made = []
    if scores:
        caption = sentence(
            "A random sentence was inserted into {} of the rows. Among the top {} of tokens by each score, how much "
            "of the inserted text is there? A high bar means that the score mistakes noise for something to learn; "
            "the dashed line is chance.",
            num(ratio, "whole-percent"),
            num(top, "whole-percent"),
        )
        made.append(
            Figure(
                "noise",
                "Which scores fall for noise",
                caption,
                _panels(scores, chance),
                _table(scores),
                columns=3,
                height=150,
            )
        )
    if weights:
        caption = sentence(
            "The same question for the weights themselves: of the tokens that a method weighs most, how much is noise? "
            "Lower is better."
        )
        made.append(
            Figure(
                "noise-weights",
                "Which methods train on noise",
                caption,
                _panels(weights, chance),
                _table(weights),
                columns=3,
                height=220,
            )
        )
    return made


def _panels(scores: list[Mapping[str, Any]], chance: Mapping[str, float]) -> list[Panel]:
    return [_bars(scores, measure, title, chance.get(measure)) for measure, title in MEASURES.items()]


def _bars(scores: list[Mapping[str, Any]], measure: str, title: str, chance: float | None) -> Panel:
    alt = altair()
    rows = [
        {
            "name": score["label"],
            "mean": score[measure]["mean"],
            "low": score[measure]["low"],
            "high": score[measure]["high"],
        }
        for score in scores
        if score[measure]["mean"] is not None
    ]
    order = [score["label"] for score in scores]
    base = alt.Chart(data(rows)).encode(y=alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=150)))
    share = alt.X("mean:Q", title=None, axis=alt.Axis(format="%", tickCount=4, grid=True), scale=alt.Scale(domainMin=0))
    bars = base.mark_bar(height={"band": 0.55}, color=var("c0"), opacity=0.85, cornerRadiusEnd=2).encode(
        x=share,
        tooltip=[
            alt.Tooltip("name:N", title="score"),
            *(alt.Tooltip(f"{f}:Q", format=".1%") for f in ("mean", "low", "high")),
        ],
    )
    whisker = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.6, color=var("ink"), clip=True)
        .encode(x="low:Q", x2="high:Q")
    )
    layers = [bars, whisker]
    if chance is not None:
        line = alt.Chart(data([{"mean": chance}])).mark_rule(strokeDash=[4, 3], color=var("ink-2")).encode(x="mean:Q")
        layers.append(line)
    return panel(title, alt.layer(*layers), height=24 * len(rows) + 20)


def _table(scores: list[Mapping[str, Any]]) -> Table:
    rows = [
        [
            score["label"],
            *(
                num(score[m]["mean"], "percent") + " " + interval(score[m]["low"], score[m]["high"], "percent")
                for m in MEASURES
            ),
        ]
        for score in scores
    ]
    return Table(["score", *MEASURES.values()], rows)
