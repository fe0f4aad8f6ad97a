"""The page: one file that works from a disk, a mail or a web server, and the JSON of its numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ranktuner.errors import DataError, InputError
from ranktuner.findings import provenance
from ranktuner.report.embed import json_block, packed, policy, static, template, vega, without_legends
from ranktuner.report.figures.base import Figure
from ranktuner.report.figures.theme import css_variables
from ranktuner.report.samples import sample_browser
from ranktuner.report.sections import Section, absent, sections
from ranktuner.report.sources import Sources, read, short_name, without_strange
from ranktuner.report.tokens import token_view

SCHEMA = 1
"""Version of report.json."""

LIMIT = 4_000_000
"""Bytes that a page may have: it is mailed, opened on phones and attached to papers."""


@dataclass(frozen=True)
class Page:
    """A report before it is written."""

    html: str
    json: str
    notices: list[str]


def write(
    paths: Iterable[str | Path],
    output: str | Path = "report.html",
    title: str | None = None,
    names: Mapping[Path, str] | None = None,
) -> Page:
    """Read runs and Findings, write the page to `output` and its numbers beside it with the suffix `.json`.

    Args:
        paths: run folders, folders of runs, Finding files.
        output: the page; its folder is made where it is missing.
        title: of the page; default from what is in it.
        names: folder of a run -> its name on the page; default its method.

    Returns:
        The page, with the notices that it shows.
    """
    output = Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            f"output {str(output)!r}: expected a name that ends in .html; the numbers go beside it as .json"
        )
    beside = output.with_suffix(".json")
    page = build(read(paths, names), title=title, json_name=beside.name)
    output.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((beside, page.json), (output, page.html)):
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return page


def build(sources: Sources, title: str | None = None, json_name: str = "report.json") -> Page:
    """Return the page of these sources.

    Raises:
        DataError: the page would be larger than `LIMIT`, or nothing is left to show.
    """
    return without_strange(sources, partial(_build, title=title, json_name=json_name))


def _build(sources: Sources, title: str | None, json_name: str) -> Page:
    tokens, samples = token_view(sources.of("tokens")), sample_browser(sources.of("samples"))
    made = sections(sources, has_tokens=tokens is not None, has_samples=samples is not None)
    title = title or default_title(sources)
    figures = [figure for section in made for figure in section.figures]
    blocks: list[tuple[str, Any]] = [
        ("data-figures", _specs(figures)),
        ("data-tokens", tokens),
        ("data-samples", samples),
    ]
    scripts = [
        static("common.js"),
        *(static(n) for n, there in (("tokens.js", tokens), ("samples.js", samples)) if there),
    ]
    if figures:
        scripts += [vega(), static("figures.js")]
    html = template("page.html.j2").render(
        title=title,
        lead=_lead(made, sources),
        csp=policy(scripts),
        css=Markup(f":root{{{css_variables()}}}\n{static('page.css')}"),
        sections=made,
        notices=sources.notices,
        blocks=[(name, json_block(block)) for name, block in blocks if block],
        scripts=[Markup(script) for script in scripts],
        json_name=json_name,
        absent=absent(made),
    )
    html = html.encode("utf-8", "replace").decode("utf-8")
    if len(html.encode()) > LIMIT:
        raise DataError(
            f"the page would have {len(html.encode()) / 1e6:.1f} MB, the limit is {LIMIT / 1e6:.0f} MB: report on "
            "fewer runs or Findings at a time, or make the large ones with fewer sets"
        )
    numbers = record(sources, title, tokens, samples)
    return Page(html, json.dumps(numbers, indent=1, allow_nan=False) + "\n", sources.notices)


def record(
    sources: Sources, title: str, tokens: Mapping[str, Any] | None, samples: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return every number of the page: runs and Findings whole, and what the page adds to them."""
    legend = {key: value for key, value in (tokens or {}).items() if key != "rows"}
    legend["tokens_in_row"] = [len(row["t"]) for row in (tokens or {}).get("rows", [])]
    return {
        "report": SCHEMA,
        "title": title,
        "made": provenance(),
        "notices": sources.notices,
        "runs": [
            {"name": run.name, "path": run.path, "run": run.config, "metrics": list(run.metrics)}
            for run in sources.runs
        ],
        "findings": [{"path": found.path, "run": found.run, **asdict(found.finding)} for found in sources.findings],
        "token_view": legend if tokens else None,
        "sample_view": {"shown": samples["shown"], "found": samples["found"]} if samples else None,
    }


def default_title(sources: Sources) -> str:
    """Return a title from what there is: the methods that were trained, else the models that were looked at."""
    compared = [found.finding.title for found in sources.of("comparison")]
    if len(compared) == 1:
        return compared[0]
    names = [run.name for run in sources.runs]
    if len(names) > 1:
        return ", ".join(names[:-1]) + " and " + names[-1] if len(names) < 5 else f"{len(names)} runs compared"
    if names:
        return f"A run of {names[0]}"
    if len(sources.findings) == 1:
        return sources.findings[0].finding.title
    tables = [table for found in sources.findings for table in found.finding.provenance.get("tables") or []]
    models = list(dict.fromkeys([str(t["model"]) for t in tables if t.get("model")]))
    models = models or list(dict.fromkeys(found.label for found in sources.findings))
    return " and ".join(map(short_name, models)) if len(models) < 3 else f"{len(models)} models compared"


def _lead(made: list[Section], sources: Sources) -> str:
    parts = {
        "comparison": "which method solves how much",
        "results": "how often it solves a problem",
        "training": "how it trained",
        "tokens": "which tokens it learns from",
        "diagnostics": "what its probabilities and entropies say",
        "suspects": "which rows look wrong",
        "samples": "what it wrote",
    }
    there = [text for name, text in parts.items() if any(section.id == name for section in made)]
    if len(sources.runs) > 1:
        there = [text.replace(" it ", " each of them ", 1).replace("its", "their") for text in there]
    text = there[0] if len(there) == 1 else ", ".join(there[:-1]) + " and " + there[-1] if there else "what was found"
    return text[0].upper() + text[1:] + ", on one page."


def _specs(figures: list[Figure]) -> dict[str, Any]:
    """Plot id -> specification with the size of its place on the page."""
    return {
        f"plot-{figure.id}-{i}": {
            **packed(without_legends(panel.spec) if figure.key else panel.spec),
            "width": "container",
            "height": figure.height,
            "autosize": {"type": "fit", "contains": "padding"},
        }
        for figure in figures
        for i, panel in enumerate(figure.panels)
    }
