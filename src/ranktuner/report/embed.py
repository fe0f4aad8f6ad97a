"""What goes into the page's file: data that cannot end its script, the policy, the scripts and the templates."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

from ranktuner.errors import missing_extra
from ranktuner.report.figures.theme import DASHES, var
from ranktuner.report.writing import visible


def without_legends(tree: Any) -> Any:
    """Return the specification without the legends of names: the page has one for all panels of a figure."""
    if isinstance(tree, Mapping):
        return {
            key: {**value, "legend": None}
            if key in ("color", "shape", "strokeDash") and isinstance(value, Mapping) and "field" in value
            else without_legends(value)
            for key, value in tree.items()
        }
    return [without_legends(one) for one in tree] if isinstance(tree, list) else tree


def packed(tree: Any) -> Any:
    """Return a specification with its data in columns of six digits: a third of the size; figures.js unpacks it."""
    if isinstance(tree, Mapping):
        rows = tree.get("values")
        if isinstance(rows, list) and len(rows) > 1 and all(_alike(row, rows[0]) for row in rows):
            return {"columns": {key: [short(row[key]) for row in rows] for key in rows[0]}}
        return {key: packed(value) for key, value in tree.items()}
    return [packed(one) for one in tree] if isinstance(tree, list) else tree


def _alike(row: Any, first: Any) -> bool:
    return isinstance(row, dict) and isinstance(first, dict) and row.keys() == first.keys()


def short(value: Any) -> Any:
    """Return a number with six significant digits, more than is ever shown; anything else as it is."""
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def json_block(value: Any) -> Markup:
    """Return JSON for a `<script type="application/json">`: nothing in it can end the script or start markup."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def policy(scripts: Iterable[str]) -> str:
    """Return the content security policy: our scripts by their hashes, and no request to anywhere.

    Even a script that slipped through the escaping would not run.
    """
    hashes = " ".join(
        "'sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() + "'" for s in scripts
    )
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


@cache
def vega() -> str:
    """The drawing library as one script that defines `vegaEmbed`."""
    try:
        import vl_convert
    except ImportError as error:
        raise missing_extra("vl-convert-python", "report", "The report") from error
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    assert "</script" not in script
    return script.replace("\r\n", "\n")


@cache
def static(name: str) -> str:
    """Return the text of one of the page's own files."""
    return resources.files("ranktuner.report").joinpath("static", name).read_text(encoding="utf-8")


@cache
def template(name: str) -> Any:
    """Return a template that escapes whatever is put into it."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise missing_extra("jinja2", "report", "The report") from error
    environment = Environment(
        autoescape=True, loader=FunctionLoader(static), undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["shown"] = lambda text: text if isinstance(text, Markup) else escape(visible(str(text)))
    environment.globals["swatch"] = swatch
    return environment.get_template(name)


def swatch(slot: int) -> Markup:
    """Return the legend's little line: colour and dash of a place in the palette."""
    dash = " ".join(map(str, DASHES[slot]))
    return Markup(
        '<svg width="26" height="8" aria-hidden="true"><line x1="1" x2="25" y1="4" y2="4" stroke="{}" '
        'stroke-width="2.5" stroke-dasharray="{}"/></svg>'
    ).format(var(f"c{slot}"), dash)
