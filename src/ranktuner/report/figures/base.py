"""Figure: what page and paper both draw. Functions in this folder turn Findings into Figures and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from ranktuner.errors import missing_extra
from ranktuner.report.figures.theme import CONFIG, DASHES, SHAPES, slots, var

Row = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One plot of a figure: a Vega-Lite specification without size; the page gives it the width of its column."""

    title: str
    spec: Mapping[str, Any]
    width: int = 260
    """On paper, in points."""
    height: int = 200


@dataclass(frozen=True)
class Table:
    """The numbers behind a figure, for readers who cannot see it and for those who want the digits."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """Markup from `num`, or text."""


@dataclass(frozen=True)
class Key:
    """A legend shared by all panels: what colour, dash and point a name has."""

    names: Mapping[str, int]
    """Name -> slot of the palette."""


@dataclass(frozen=True)
class Figure:
    """A titled group of panels with a caption and its table."""

    id: str
    """Unique on a page; the file name on paper."""
    title: str
    caption: Markup
    panels: Sequence[Panel]
    table: Table | None = None
    key: Key | None = None
    columns: int = 2
    """How many panels stand side by side on a wide page."""
    height: int = 240
    """Of a panel on the page, in pixels."""
    note: Markup = field(default_factory=Markup)
    """Small print: counts, protocol, intervals."""


def altair() -> Any:
    """Return altair, or the error that names the extra."""
    try:
        import altair as alt
    except ImportError as error:
        raise missing_extra("altair", "report", "Drawing figures") from error
    return alt


def spec_of(chart: Any) -> dict[str, Any]:
    """Return the chart as a specification with the data inside and our configuration."""
    alt = altair()
    # Validating every datum against the schema would take most of the time; the tests draw every figure instead.
    with alt.data_transformers.enable("default", max_rows=None, consolidate_datasets=False):
        spec: dict[str, Any] = chart.to_dict(validate=False)
    spec["config"] = dict(CONFIG)
    spec.pop("$schema", None)
    return spec


def panel(title: str, chart: Any, width: int = 260, height: int = 200) -> Panel:
    """Return a panel of an altair chart."""
    return Panel(title, spec_of(chart), width, height)


def data(rows: Sequence[Row]) -> Any:
    """Return rows as inline data."""
    alt = altair()
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        return alt.Data(values=list(rows))


def columns(**arrays: Sequence[Any]) -> list[Row]:
    """Turn parallel columns into rows."""
    return [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]


def name_channels(names: Sequence[str], field_name: str = "name", points: bool = False) -> dict[str, Any]:
    """Return the encodings that tell names apart: colour, and dash or point for those who do not see the colour.

    Args:
        names: every name of the figure, in the order of its legend.
        field_name: the data field that holds the name.
        points: encode by point shape instead of dash.
    """
    alt = altair()
    place = slots(names)
    order = list(dict.fromkeys(names))
    channels = {"color": alt.Color(f"{field_name}:N", title=None, sort=order, scale=_colours(order))}
    if points:
        marks = alt.Scale(domain=order, range=[SHAPES[place[n]] for n in order])
        channels["shape"] = alt.Shape(f"{field_name}:N", title=None, sort=order, scale=marks)
    else:
        dashes = alt.Scale(domain=order, range=[DASHES[place[n]] for n in order])
        channels["strokeDash"] = alt.StrokeDash(f"{field_name}:N", title=None, sort=order, scale=dashes)
    return channels


def under_each_name(rows: Sequence[Row], names: Sequence[str], draw: Any) -> list[Any]:
    """Return one layer for each name in its plain colour, for bands and points beside the lines.

    Encoded by name they would turn the lines' legend into blobs.

    Args:
        rows: of all names, in the field `name`.
        names: every name of the figure.
        draw: (chart, colour) -> layer.
    """
    place = slots(names)
    layers = []
    for name in dict.fromkeys(names):
        own = [row for row in rows if row["name"] == name]
        if own:
            layers.append(draw(altair().Chart(data(own)), var(f"c{place[name]}")))
    return layers


def _colours(order: Sequence[str]) -> Any:
    place = slots(order)
    return altair().Scale(domain=list(order), range=[var(f"c{place[name]}") for name in order])


def shaded(
    field_name: str, title: str, steps: Sequence[float], colours: Sequence[str], legend: Any = None
) -> dict[str, Any]:
    """Return the encodings of a map's cells: fill by steps, and a hairline of the same colour against seams."""
    alt = altair()
    scale = alt.Scale(type="threshold", domain=list(steps), range=list(colours))
    return {
        "color": alt.Color(field_name, title=title, scale=scale, legend=legend),
        "stroke": alt.Stroke(field_name, title=title, scale=scale, legend=legend),
    }


CELL: dict[str, Any] = {"strokeWidth": 0.6, "filled": True}
"""Mark properties of a map's cells."""


def grid_rows(
    x_edges: Sequence[float], y_edges: Sequence[float], counts: Sequence[Sequence[float]], skip_empty: bool = True
) -> list[Row]:
    """Turn a grid (`counts[i][j]`: x bin i, y bin j) into rectangles."""
    return [
        {"x": x_edges[i], "x2": x_edges[i + 1], "y": y_edges[j], "y2": y_edges[j + 1], "count": count}
        for i, line in enumerate(counts)
        for j, count in enumerate(line)
        if count or not skip_empty
    ]


def safe_id(*parts: str) -> str:
    """Return an identifier for HTML and for file names from any text."""
    text = "-".join(parts).lower()
    return "-".join(filter(None, ("".join(c if c.isalnum() and c.isascii() else "-" for c in text)).split("-"))) or "x"
