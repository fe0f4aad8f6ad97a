"""Figures for papers: the page's figures as SVG and PDF files, one file each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ranktuner.errors import DataError, InputError, missing_extra, nearest
from ranktuner.report.comparison import covered
from ranktuner.report.figures import OF_KIND, evaluation, training
from ranktuner.report.figures.base import Figure
from ranktuner.report.figures.theme import CONFIG, resolve
from ranktuner.report.sections import unique
from ranktuner.report.sources import Sources, read, without_strange

FORMATS = ("svg", "pdf", "png")


def write_figures(
    paths: Iterable[str | Path],
    output: str | Path = "figures",
    formats: Sequence[str] = ("svg", "pdf"),
    only: Sequence[str] = (),
) -> list[Path]:
    """Write every figure of the sources into a folder and return the files.

    Args:
        paths: run folders and Finding files.
        output: the folder.
        formats: of `svg`, `pdf`, `png` (300 dpi).
        only: figure names (`noise`, `tightness-gsm8k`) or Finding kinds; empty for all.
    """
    for name in formats:
        if name not in FORMATS:
            raise InputError(f"format {name!r}: {nearest(name, FORMATS)}")
    figures = _chosen(all_figures(read(paths)), only)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    return [write_figure(figure, folder / f"{figure.id}.{name}") for figure in figures for name in formats]


def all_figures(sources: Sources) -> list[Figure]:
    """Return every figure of the sources, in the page's order."""
    return without_strange(sources, _all_figures)


def _all_figures(sources: Sources) -> list[Figure]:
    figures = evaluation.figures(covered(sources.of("pass-at-k"), sources.of("comparison")))
    figures += training.figures(sources.runs)
    for kind, draw in OF_KIND.items():
        for found in sources.of(kind):
            figures += draw(found.finding)
    if not figures:
        why = f": {'; '.join(sources.notices)}" if sources.notices else ""
        raise DataError(
            f"no figure can be drawn from these files{why}; figures are made of training runs and of {list(OF_KIND)}"
        )
    return unique(figures)


def _chosen(figures: list[Figure], only: Sequence[str]) -> list[Figure]:
    if not only:
        return figures
    names = [figure.id for figure in figures]
    for wanted in only:
        if not any(_is(wanted, name) for name in names):
            raise InputError(f"there is no figure {wanted!r} in these files; {nearest(wanted, names)}")
    return [figure for figure in figures if any(_is(wanted, figure.id) for wanted in only)]


def _is(wanted: str, name: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}-")


def paper_spec(figure: Figure) -> dict[str, Any]:
    """Return one specification of all panels, side by side, in fixed sizes and printable colours."""
    panels = [
        {
            **{k: v for k, v in panel.spec.items() if k != "config"},
            "title": panel.title,
            "width": panel.width,
            "height": panel.height,
        }
        for panel in figure.panels
    ]
    spec: dict[str, Any] = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "concat": panels,
        "columns": figure.columns,
        "spacing": 24,
        # With one key for the figure its panels share their colours; without, each panel has names of its own.
        "resolve": {"scale": {} if figure.key else dict.fromkeys(("color", "strokeDash", "shape"), "independent")},
        "config": {**CONFIG, "background": "white"},
    }
    resolved: dict[str, Any] = resolve(spec)
    return resolved


def write_figure(figure: Figure, path: Path) -> Path:
    """Write one figure; the path's ending says in which format."""
    try:
        import vl_convert
    except ImportError as error:
        raise missing_extra("vl-convert-python", "report", "Writing figures") from error
    spec = paper_spec(figure)
    if path.suffix == ".svg":
        content = vl_convert.vegalite_to_svg(spec).encode("utf-8")
    elif path.suffix == ".pdf":
        content = vl_convert.vegalite_to_pdf(spec)
    else:
        content = vl_convert.vegalite_to_png(spec, ppi=300)
    path.write_bytes(content)
    return path
