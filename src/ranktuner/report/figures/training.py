"""Training curves: one small plot for each thing a run writes down at every step."""

from __future__ import annotations

from collections.abc import Sequence

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
from ranktuner.report.figures.theme import slots
from ranktuner.report.sources import Run
from ranktuner.report.writing import num

CURVES: dict[str, tuple[str, str]] = {
    "nll": ("plain NLL (nats a token)", "auto"),
    "loss": ("weighted loss", "auto"),
    "effective_tokens": ("effective share of tokens", "percent"),
    "weight_mean": ("mean weight", "auto"),
    "k_mean": ("mean exponent K", "auto"),
    "entropy_bits_mean": ("mean entropy H (bits)", "auto"),
    "high_entropy_share": ("share of tokens with H ≥ 2 bits", "percent"),
    "top1": ("top-1 accuracy", "percent"),
    "grad_norm": ("gradient norm", "auto"),
    "learning_rate": ("learning rate", "auto"),
}
"""Field of metrics.jsonl -> (title, style of its number)."""

MAIN = ("nll", "loss", "effective_tokens", "entropy_bits_mean")
MOST_POINTS = 400


def thinned(run: Run, most: int = MOST_POINTS) -> list[Row]:
    """Return at most `most` records spread evenly over the run, always with the first and the last."""
    records = [dict(record) for record in run.metrics]
    if len(records) <= most:
        return records
    picked = sorted({round(i * (len(records) - 1) / (most - 1)) for i in range(most)})
    return [records[i] for i in picked]


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Return the curves: the main ones, and the rest as a second figure."""
    if not runs:
        return []
    names = [run.name for run in runs]
    key = Key(slots(names))
    panels = {field: made for field in CURVES if (made := _curve(field, runs)) is not None}
    thin = any(len(run.metrics) > MOST_POINTS for run in runs)
    note = Markup(
        "Plain NLL is the yardstick that all methods share; weighted losses of different methods are not comparable."
    )
    if thin:
        note += Markup(" Long runs are drawn with at most {} points each; report.json has every step.").format(
            MOST_POINTS
        )
    main = Figure(
        id="training",
        title="Training curves",
        caption=Markup("What each run minimised, what every run has in common, and how many tokens it really used."),
        panels=[panels[field] for field in MAIN if field in panels],
        table=_table(runs),
        key=key,
        note=note,
    )
    rest = Figure(
        id="training-more",
        title="More of the same steps",
        caption=Markup("Weights, entropy, accuracy and the optimiser’s own numbers."),
        panels=[made for field, made in panels.items() if field not in MAIN],
        key=key,
        columns=3,
        height=170,
    )
    return [figure for figure in (main, rest) if figure.panels]


def _curve(field: str, runs: Sequence[Run]) -> Panel | None:
    alt = altair()
    title, style = CURVES[field]
    rows = [
        {"step": record["step"], "value": record[field], "name": run.name}
        for run in runs
        for record in thinned(run)
        if isinstance(record.get(field), int | float)
    ]
    if not rows:
        return None
    axis = alt.Axis(title=None, format="%" if style == "percent" else "~g", tickCount=5)
    channels = name_channels([run.name for run in runs])
    base = alt.Chart(data(rows)).encode(
        x=alt.X("step:Q", title="optimiser step", axis=alt.Axis(tickCount=6, tickMinStep=1)),
        y=alt.Y("value:Q", axis=axis, scale=alt.Scale(zero=style == "percent")),
    )
    tips = [alt.Tooltip("name:N", title="run"), "step:Q", alt.Tooltip("value:Q", title=title, format=".4~g")]
    layers = [base.mark_line().encode(**channels, tooltip=tips)]
    evaluated = _evaluated(runs) if field == "nll" else []
    if evaluated:
        held = [
            alt.Tooltip("name:N", title="run"),
            "step:Q",
            alt.Tooltip("value:Q", title="held-out NLL", format=".4~g"),
        ]
        layers += under_each_name(
            evaluated,
            [run.name for run in runs],
            lambda chart, colour: chart.mark_circle(size=50, opacity=1, color=colour).encode(
                x="step:Q", y="value:Q", tooltip=held
            ),
        )
        title += "; points: held out"
    return panel(title, alt.layer(*layers))


def _evaluated(runs: Sequence[Run]) -> list[Row]:
    return [
        {"step": record["step"], "value": record["eval_nll"], "name": run.name}
        for run in runs
        for record in run.metrics
        if isinstance(record.get("eval_nll"), int | float)
    ]


def _table(runs: Sequence[Run]) -> Table:
    head = [
        "run",
        "steps",
        "NLL at first",
        "NLL at last",
        "held-out NLL",
        "effective tokens",
        "mean K",
        "mean H (bits)",
        "tokens/s",
    ]
    rows = []
    for run in runs:
        first, last = run.ends
        held = [record["eval_nll"] for record in run.metrics if record.get("eval_nll") is not None]
        rows.append(
            [
                run.name,
                num(last["step"], "count"),
                num(first.get("nll")),
                num(last.get("nll")),
                num(held[-1] if held else None),
                num(last.get("effective_tokens"), "percent"),
                num(last.get("k_mean")),
                num(last.get("entropy_bits_mean")),
                num(last.get("tokens_per_s"), "count"),
            ]
        )
    return Table(head, rows)
