"""`ranktuner report` and `ranktuner figures`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True)

_Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN", help="Run folders (with everything below them), folders of runs, or Finding files (.json)."
    ),
]


@app.command()
def report(
    runs: _Runs,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The page; its numbers go beside it with the suffix .json.")
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page. Default: the names of the runs.")] = None,
) -> None:
    """Write one self-contained HTML page about runs, evaluations and diagnostics.

    The page works offline, on a phone and in print; report.json beside it has every number.

    Example: ranktuner report runs/sft runs/ranktuner -o report.html
    """
    from ranktuner.report import write

    page = write(runs, output, title)
    for notice in page.notices:
        typer.echo(f"note: {notice}", err=True)
    size = len(page.html.encode()) / 1e6
    typer.echo(f"{output} ({size:.1f} MB) and {output.with_suffix('.json').name}")


@app.command()
def figures(
    runs: _Runs,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the files.")] = Path("figures"),
    formats: Annotated[str, typer.Option("--format", help="svg, pdf, png; several with commas.")] = "svg,pdf",
    only: Annotated[
        list[str] | None,
        typer.Option(help="A figure (noise, surface, training, pass-at-k, ...); repeat for several. Default: all."),
    ] = None,
) -> None:
    """Write the figures of runs and Findings as files for a paper: SVG and PDF, one file each.

    Example: ranktuner figures runs/ranktuner --only tightness --format pdf -o paper/figures
    """
    from ranktuner.report import write_figures

    for path in write_figures(runs, output, [f.strip() for f in formats.split(",") if f.strip()], only or ()):
        typer.echo(path)
