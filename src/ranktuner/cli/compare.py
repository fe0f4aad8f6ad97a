"""`ranktuner compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

WHAT, HOW, JOBS = "What", "How", "Several processes"


def _option(help_: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=panel, **more)


@app.command()
def compare(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe's .toml, or the name of one that comes along; --list names them.")
    ] = None,
    plan: Annotated[bool, _option("Print what would run, tokens and rough times, and stop.", WHAT, "--plan")] = False,
    only: Annotated[
        list[str] | None, _option("Run this row (its label) beside the original; repeat for several.", WHAT)
    ] = None,
    scale: Annotated[
        str, _option("full; small: SmolLM2 and generated problems; tiny: a random model in a minute.", WHAT)
    ] = "full",
    set_: Annotated[
        list[str] | None, _option("Any setting of the recipe, e.g. --set eval.n=4 --set seeds=[0,1]", WHAT, "--set")
    ] = None,
    list_: Annotated[bool, _option("List the recipes that come along, and stop.", WHAT, "--list")] = False,
    output: Annotated[
        Path | None, _option("Folder of table and report. [the recipe's, or runs/compare/NAME]", HOW, "-o", "--output")
    ] = None,
    cells: Annotated[
        Path | None, _option("Folder of all cells. [$RANKTUNER_CELLS, or runs/compare/cells]", HOW)
    ] = None,
    quiet: Annotated[bool, _option("Print the table only.", HOW, "--quiet")] = False,
    print_jobs: Annotated[
        bool, _option("Print one shell line a job (for xargs, SLURM, ...), and stop.", JOBS, "--print-jobs")
    ] = False,
    cell: Annotated[
        list[str] | None, _option("Do the cell of this key, and what it needs; makes no report.", JOBS)
    ] = None,
    report: Annotated[
        bool, _option("Without: do the cells and leave table and report to another call.", JOBS, "--report/--no-report")
    ] = True,
) -> None:
    """Train, evaluate and diagnose every method of a recipe, and report on them side by side.

    Everything finished is kept: stopped at any moment, the same command goes on; a cell that failed is tried again.

    \b
    Examples:
      ranktuner compare main-results --scale tiny
      ranktuner compare my-recipe.toml --plan
      ranktuner compare my-recipe.toml --print-jobs | xargs -d '\\n' -P 4 -I{} sh -c '{}'
    """
    from ranktuner.compare.recipe import read_recipe, shipped
    from ranktuner.errors import InputError, nearest

    if list_:
        for name in shipped():
            typer.echo(f"{name:<22} {read_recipe(name).title}")
        return
    if recipe is None:
        raise InputError(f"no recipe: give the path of a .toml file, or a name; {nearest('', shipped())}")
    options: dict[str, Any] = {"only": only or (), "scale": scale, "sets": set_ or (), "cells": cells}
    if print_jobs:
        _print_jobs(recipe, options)
        return
    from ranktuner.compare.run import compare as run

    try:
        found = run(recipe, **options, output=output, plan=plan, cell=cell or (), report=report, quiet=quiet)
    except KeyboardInterrupt:
        typer.echo("stopped: what is finished is kept; the same command goes on from there", err=True)
        raise typer.Exit(130) from None
    if plan:
        return
    _print(found, cell or not report, recipe)


def _print_jobs(recipe: str, options: dict[str, Any]) -> None:
    from ranktuner.compare.cells import Cells
    from ranktuner.compare.job_lines import job_lines, options_of
    from ranktuner.compare.run import cells_folder, read
    from ranktuner.compare.scale import scaled
    from ranktuner.compare.store import Store

    made = scaled(read(recipe, options["sets"]), options["scale"])
    cells = Cells(made, Store(cells_folder(options["cells"])), tuple(options["only"]))
    cells.check()
    at = str(options["cells"]) if options["cells"] else None
    lines = list(job_lines(cells, recipe, options_of(cells, options["scale"], options["sets"], at)))
    for line in lines:
        typer.echo(line)
    typer.echo(
        f"{len(lines)} jobs, in any order and at once; the same command without --print-jobs then makes the table and "
        "the report, and does what is missing",
        err=True,
    )


def _print(found: Any, cells_only: Any, recipe: str) -> None:
    from rich.console import Console

    from ranktuner.compare.printing import print_table

    console = Console()
    if found.finding is not None:
        print_table(found.finding, console)
    for one in found.failed:
        where = ", ".join(str(one[key]) for key in ("model", "label", "seed") if one[key] not in ("", None))
        typer.echo(f"FAILED {one['stage']}{f' ({where})' if where else ''}: {one['error']}", err=True)
        if one["folder"]:
            typer.echo(f"       whole message: {one['folder']}/error.txt", err=True)
    if found.report:
        typer.echo(f"report   {found.report} (open it in a browser), Findings in {found.output / 'findings'}")
        typer.echo(
            f"next     ranktuner figures {found.output / 'findings'} -o figures    # the same figures for a paper"
        )
    if found.failed:
        count = f"{len(found.failed)} cell{'s' * (len(found.failed) > 1)}"
        typer.echo(f"{count} failed; everything else is done. The same command tries them again.", err=True)
        raise typer.Exit(1)
    if cells_only:
        typer.echo(f"done; `ranktuner compare {recipe}` makes table and report when all jobs are", err=True)
