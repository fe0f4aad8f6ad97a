"""Comparison: pass@k of every row of a recipe, and the differences between rows, paired over problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ranktuner.findings import Finding
from ranktuner.report.figures import evaluation
from ranktuner.report.figures.base import Figure, Key, Panel, Row, Table, altair, data, panel
from ranktuner.report.figures.theme import slots, var
from ranktuner.report.sources import short_name
from ranktuner.report.writing import interval, num

Record = Mapping[str, Any]
AGAINST = {"to_original": "less the original", "to_best": "less the best other"}
"""Key of a row's differences -> what a reader is told it is."""


def place(table: Record) -> str:
    """Return which model and task a table is about."""
    return f"{model_name(table['model'])} on {table['task']}"


def model_name(model: str) -> str:
    """Return the model's short name; one that stands in for another at a smaller scale keeps what says so."""
    return model if model.startswith(("tiny/", "small/")) else short_name(model)


def at(records: Iterable[Record], k: int | None) -> Record | None:
    """Return the record of this k, or None where it was not measured."""
    return next((one for one in records if one["k"] == k), None)


def side(difference: Record) -> str:
    """Return where the interval lies: `above` 0, `below` it, or `open` where it includes 0."""
    return "above" if difference["low"] > 0 else "below" if difference["high"] < 0 else "open"


def figures(finding: Finding) -> list[Figure]:
    """Return pass@k with intervals, and the differences as a forest of points and lines."""
    tables = [table for table in finding.numbers["tables"] if table["ks"]]
    several = [table for table in tables if len(table["ks"]) > 1]
    single = [table for table in tables if len(table["ks"]) == 1]
    key = _key(tables)
    names = _last_original(key.names)
    made = []
    if several:
        caption = Markup(
            "The chance that at least one of k samples solves the problem. A curve that starts higher means better "
            "first answers; one that ends higher means that more problems are within reach."
        )
        note = Markup("Bands: 95 % bootstrap intervals over problems. Curves whose bands overlap may still differ, ")
        note += Markup("and the other way round: the differences below are the paired comparison.")
        panels = [evaluation.curve(place(table), _scores(table), names) for table in several]
        made.append(_scored("comparison-pass-at-k", "pass@k of every row", caption, panels, several, key, note))
    if single:
        caption = Markup("The measured share of solved problems, and its 95 % interval over problems as a line.")
        panels = [evaluation.points(place(table), _scores(table), names) for table in single]
        made.append(_scored("comparison-solved", "Solved by every row", caption, panels, single, key, Markup("")))
    return made + _forests(tables)


def _key(tables: Sequence[Record]) -> Key:
    """Return the place of every row that has numbers, in the order of the rows."""
    labels = dict.fromkeys(row["name"] for table in tables for row in _scores(table))
    place = slots(_last_original(labels))
    return Key({label: place[label] for label in labels})


def _last_original(labels: Iterable[str]) -> list[str]:
    """Return the order in which colours are given: the original comes last, so that it takes no method's."""
    return sorted(labels, key=lambda label: label == "original")


def _scored(
    name: str,
    title: str,
    caption: Markup,
    panels: Sequence[Panel],
    tables: Sequence[Record],
    key: Key,
    note: Markup,
) -> Figure:
    columns = 1 if len(panels) == 1 else 3 if len(panels) > 2 else 2
    height = max(one.height for one in panels) + 30
    return Figure(name, title, caption, panels, _all_scores(tables), key, columns=columns, height=height, note=note)


def _scores(table: Record) -> list[Row]:
    fields = ("k", "value", "low", "high")
    return [
        {"name": row["label"], **{field: record[field] for field in fields}}
        for row in table["rows"]
        for record in row["pass_at_k"]
        if record["value"] is not None
    ]


def _all_scores(tables: Sequence[Record]) -> Table:
    """Every row at every k, with the seeds one by one."""
    rows = [
        [
            place(table),
            row["label"],
            num(record["k"], "exact"),
            num(record["value"], "percent") + " " + interval(record["low"], record["high"], "percent"),
            num(record["standard_error"], "points"),
            Markup(", ").join(num(one["value"], "points") for one in record["seeds"]),
        ]
        for table in tables
        for row in table["rows"]
        for record in row["pass_at_k"]
    ]
    return Table(["model and task", "row", "k", "pass@k", "std. error", "each training"], rows)


def _forests(tables: Sequence[Record]) -> list[Figure]:
    """Draw the differences at each table's first k; a panel for the original, one for the best other."""
    panels = [
        _forest(f"{place(table)}, pass@{table['k']}: {text}", found)
        for table in tables
        for key, text in AGAINST.items()
        if (found := _differences(table, key))
    ]
    if not panels:
        return []
    caption = Markup(
        "Each row less another over the same problems, in points of percent, with its 95 % interval. A filled point: "
        "the interval lies on one side of 0. A hollow one: it includes 0, so the difference may be chance."
    )
    note = Markup("The best other row is chosen on these same problems, so a lead over it is the harder test, and its ")
    note += Markup("own lead over the rest is flattered.")
    height = max(one.height for one in panels) + 30
    return [
        Figure(
            "comparison-differences",
            "Differences between rows",
            caption,
            panels,
            _all_differences(tables),
            columns=2,
            height=height,
            note=note,
        )
    ]


def _differences(table: Record, key: str) -> list[Row]:
    found = [(row["label"], at(row[key], table["k"])) for row in table["rows"]]
    return [
        {"name": label, "to": one["to"], **{f: one[f] for f in ("value", "low", "high")}, "side": side(one)}
        for label, one in found
        if one
    ]


def _forest(title: str, rows: Sequence[Row]) -> Panel:
    alt = altair()
    order = [row["name"] for row in rows]
    # Points of percent: a share with a % sign would read as a relative change.
    points = alt.Axis(labelExpr="datum.value == 0 ? '0' : format(100 * datum.value, '+d')", tickCount=5, grid=True)
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=170))
    base = alt.Chart(data(rows)).encode(y=y)
    rule = base.mark_rule(strokeWidth=2, color=var("ink-2")).encode(
        x=alt.X("low:Q", title="points", axis=points), x2="high:Q"
    )
    tips = [alt.Tooltip("name:N", title="row"), alt.Tooltip("to:N", title="less")]
    tips += [
        alt.Tooltip(f"{f}:Q", title=t, format="+.1%")
        for f, t in (("value", "difference"), ("low", "from"), ("high", "to"))
    ]
    fill = alt.Fill(
        "side:N",
        legend=None,
        scale=alt.Scale(domain=["above", "below", "open"], range=[var("good"), var("bad"), var("panel")]),
    )
    stroke = alt.Stroke(
        "side:N",
        legend=None,
        scale=alt.Scale(domain=["above", "below", "open"], range=[var("good"), var("bad"), var("ink-2")]),
    )
    point = base.mark_point(size=80, strokeWidth=1.6, opacity=1).encode(
        x="value:Q", fill=fill, stroke=stroke, tooltip=tips
    )
    zero = alt.Chart(data([{}])).mark_rule(color=var("ink"), strokeDash=[4, 3]).encode(x=alt.XDatum(0))
    return panel(title, alt.layer(zero, rule, point), height=28 * len(order) + 30)


def _all_differences(tables: Sequence[Record]) -> Table:
    rows = [
        [
            place(table),
            row["label"],
            one["to"],
            num(one["k"], "exact"),
            num(one["problems"], "count"),
            num(one["value"], "difference") + " " + interval(one["low"], one["high"], "difference"),
            {"above": "above 0", "below": "below 0", "open": "includes 0"}[side(one)],
        ]
        for table in tables
        for row in table["rows"]
        for key in AGAINST
        for one in row[key]
    ]
    return Table(["model and task", "row", "less", "k", "problems", "points", "interval"], rows)
