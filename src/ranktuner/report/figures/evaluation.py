"""Evaluation: pass@k of every model on every task, side by side, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ranktuner.report.figures.base import (
    Figure,
    Key,
    Panel,
    Row,
    Table,
    altair,
    data,
    name_channels,
    panel,
    under_each_name,
)
from ranktuner.report.figures.theme import slots, var
from ranktuner.report.sources import Located
from ranktuner.report.writing import interval, num, sentence


def tasks_of(found: Sequence[Located]) -> dict[str, dict[str, Located]]:
    """Return task -> model -> Finding, both in the order in which they were found."""
    tasks: dict[str, dict[str, Located]] = {}
    for one in found:
        models = tasks.setdefault(one.finding.numbers["task"], {})
        # The same model twice on one task: two evaluations with other settings, told apart by where they lie.
        models[one.label if one.label not in models else f"{one.label} ({one.path})"] = one
    return tasks


def models_of(found: Sequence[Located]) -> list[str]:
    """Return every model's label once."""
    return list(dict.fromkeys(name for models in tasks_of(found).values() for name in models))


def at(found: Located, k: int) -> Mapping[str, Any] | None:
    """Return the row of pass@k, or None where it was not measured."""
    return next((row for row in found.finding.numbers["pass_at_k"] if row["k"] == k), None)


def figures(found: Sequence[Located]) -> list[Figure]:
    """Return pass@k curves where several k were measured, else points with intervals."""
    if not found:
        return []
    key = Key(slots(models_of(found)))
    tasks = tasks_of(found)
    curved = {task: models for task, models in tasks.items() if any(_several(one) for one in models.values())}
    flat = {task: models for task, models in tasks.items() if task not in curved}
    made = []
    if flat:
        panels = [points(task, _rows(models), list(key.names)) for task, models in flat.items()]
        caption = Markup(
            "The point is the measured share of solved problems, the line its 95 % interval over problems."
        )
        made.append(
            Figure("pass-at-1", "Solved at the first try", caption, panels, _counts(flat), key, columns=3, height=140)
        )
    if curved:
        panels = [curve(task, _rows(models), list(key.names)) for task, models in curved.items()]
        caption = Markup(
            "The chance that at least one of k samples solves the problem. A curve that starts higher means better "
            "first answers; one that ends higher means that more problems are within reach."
        )
        note = Markup("Bands: 95 % bootstrap intervals over problems.")
        columns = 3 if len(panels) > 2 else 2
        made.append(
            Figure("pass-at-k", "pass@k", caption, panels, _counts(curved), key, columns=columns, height=230, note=note)
        )
    return made


def _several(found: Located) -> bool:
    return len(found.finding.numbers["pass_at_k"]) > 1


def _rows(models: Mapping[str, Located]) -> list[Row]:
    fields = ("k", "value", "low", "high")
    return [
        {"name": name, **{field: row[field] for field in fields}}
        for name, one in models.items()
        for row in one.finding.numbers["pass_at_k"]
    ]


_TIPS = (("value", "solved"), ("low", "from"), ("high", "to"))


def curve(title: str, rows: Sequence[Row], names: Sequence[str]) -> Panel:
    """Return pass@k over k for each name, with its interval as a band.

    Args:
        title: of the panel.
        rows: with name, k, value, low, high.
        names: every name of the figure: a name has one colour in all of its panels.
    """
    alt = altair()
    scale = alt.Scale(type="log", base=2, nice=False)
    x = alt.X("k:Q", title="k", scale=scale, axis=alt.Axis(grid=False, format="d"))
    y = alt.Y("value:Q", title=None, axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(domainMin=0))
    bands = under_each_name(
        rows,
        names,
        lambda chart, colour: chart.mark_area(color=colour, opacity=0.13).encode(x=x, y="low:Q", y2="high:Q"),
    )
    tips = [alt.Tooltip(f"{field}:Q", title=title, format=".1%") for field, title in _TIPS]
    tips = [alt.Tooltip("name:N", title="model"), "k:Q", *tips]
    lines = alt.Chart(data(rows)).mark_line().encode(x=x, y=y, **name_channels(names))
    dots = under_each_name(
        rows,
        names,
        lambda chart, colour: chart.mark_circle(color=colour, size=36, opacity=1).encode(x=x, y=y, tooltip=tips),
    )
    return panel(title, alt.layer(*bands, lines, *dots))


def points(title: str, rows: Sequence[Row], names: Sequence[str]) -> Panel:
    """Return one point for each name, with its interval as a line; see `curve`."""
    alt = altair()
    order = list(dict.fromkeys(row["name"] for row in rows))
    channels = name_channels(names, points=True)
    axis = alt.Axis(format="%", tickCount=4, grid=True)
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=140))
    base = alt.Chart(data(rows)).encode(y=y)
    rule = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title=None, axis=axis, scale=alt.Scale(zero=False)), x2="high:Q", color=channels["color"]
    )
    tips = [alt.Tooltip("name:N", title="model"), *(alt.Tooltip(f"{f}:Q", title=t, format=".1%") for f, t in _TIPS)]
    point = base.mark_point(size=80, filled=True, opacity=1).encode(x="value:Q", **channels, tooltip=tips)
    # A point on its own says little about where zero is, so the axis starts there unless everything is far above.
    zero = alt.Chart(data([{}])).mark_rule(opacity=0, color=var("rule")).encode(x=alt.XDatum(0))
    return panel(title, alt.layer(zero, rule, point), height=28 * len(order) + 20)


def tables(found: Sequence[Located]) -> list[tuple[str, Table, Markup]]:
    """Return pass@k of models (rows) on tasks (columns), with what must be said beside it."""
    tasks, models = tasks_of(found), models_of(found)
    ks = sorted({row["k"] for one in found for row in one.finding.numbers["pass_at_k"]})
    shown = ks if len(ks) <= 2 else [ks[0], ks[-1]]
    note = Markup("Beside each number: its 95 % bootstrap interval over problems.")
    made = [(f"pass@{k}", Table(["model", *tasks], [_line(name, tasks, k) for name in models]), note) for k in shown]
    return [*made[:-1], (made[-1][0], made[-1][1], note + " " + _remarks(found))]


def _line(model: str, tasks: Mapping[str, Mapping[str, Located]], k: int) -> list[Any]:
    cells: list[Any] = [model]
    for models in tasks.values():
        row = at(models[model], k) if model in models else None
        ends = interval(row["low"], row["high"], "percent") if row else Markup("")
        cells.append(num(row["value"], "percent") + " " + ends if row else num(None))
    return cells


_VERDICTS = ("correct", "wrong", "unparsed", "truncated", "timeout", "error")


def _counts(tasks: Mapping[str, Mapping[str, Located]]) -> Table:
    head = ["task", "model", "problems", "samples", *_VERDICTS, "tokens a sample"]
    rows = []
    for task, models in tasks.items():
        for name, one in models.items():
            numbers = one.finding.numbers
            verdicts = [num(numbers["verdicts"].get(verdict), "count") for verdict in _VERDICTS]
            size = [num(one.finding.n, "count"), num(numbers["samples"], "count")]
            rows.append([task, name, *size, *verdicts, num(numbers["tokens"]["mean"], "count")])
    return Table(head, rows)


def _remarks(found: Sequence[Located]) -> Markup:
    """What must be said beside the figures: unfinished runs, grader errors, identical samples."""
    said = [Markup("Samples without a readable answer count as wrong, each kind under its name.")]
    for one in found:
        numbers, who = one.finding.numbers, f"{one.label} on {one.finding.numbers['task']}"
        if not numbers["complete"]:
            left = num(numbers["unfinished_problems"], "count")
            said.append(
                sentence("{} is unfinished: {} problems lack samples; the figures are over what is there.", who, left)
            )
        if numbers["verdicts"].get("error"):
            said.append(
                sentence("{}: {} samples could not be graded.", who, num(numbers["verdicts"]["error"], "count"))
            )
        if numbers.get("same_answers") and (one.finding.protocol.get("decoding") or {}).get("temperature", 0) > 0:
            same = num(numbers["same_answers"], "count")
            said.append(
                sentence("{}: {} problems have the same answer in every sample: is the seed ignored?", who, same)
            )
    return Markup(" ").join(said)
