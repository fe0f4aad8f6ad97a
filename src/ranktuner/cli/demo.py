"""`ranktuner demo`: the recipe `demo` from a fresh installation to a report, and how long each part took."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ranktuner.errors import MissingExtraError

if TYPE_CHECKING:
    from ranktuner.findings import Finding

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

NEEDED = (
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "datasets",
    "math_verify",
    "altair",
    "vl_convert",
    "jinja2",
    "gguf",
)
TIMES = "times.json"
STAGES = ("prepare", "train", "eval", "diagnose")


@app.command()
def demo(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder of the result. [runs/demo]")] = None,
    cells: Annotated[Path | None, typer.Option(help="Folder of all cells. [runs/compare/cells]")] = None,
    scale: Annotated[str, typer.Option(help="full; small: fewer problems; tiny: a random model.")] = "full",
) -> None:
    """See RankTuner at work: fine-tune a small real model in four ways, evaluate, diagnose, report.

    SmolLM2-135M-Instruct comes from PyPI (93 MB), the problems are generated. It takes minutes on two cores; stopped
    at any moment, the same command goes on, and a second run takes seconds.

    Example: ranktuner demo -o runs/demo
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the demo trains, evaluates and reports, and {', '.join(missing)} is not installed: "
            "pip install 'ranktuner[all]'"
        )
    from ranktuner.compare.run import compare

    typer.echo(
        "The demo: SmolLM2-135M-Instruct (from PyPI) learns generated word problems with sft, dft and ranktuner, is\n"
        "evaluated as it was and after each, and its tokens are looked at. Ctrl-C stops; the same command goes on.",
        err=True,
    )
    began = time.time()
    try:
        found = compare("demo", output=output, cells=cells, scale=scale)
    except KeyboardInterrupt:
        typer.echo("stopped: what is finished is kept; the same command goes on from there", err=True)
        raise typer.Exit(130) from None
    from rich.console import Console

    from ranktuner.compare.printing import print_table

    console = Console()
    if found.finding is not None:
        print_table(found.finding, console)
    for one in found.failed:
        typer.echo(f"FAILED {one['stage']} {one['label']}: {one['error']} ({one['folder']}/error.txt)", err=True)
    if found.report is None or found.failed:
        raise typer.Exit(1)
    times = times_of(found.output, began, time.time())
    times.save(found.output / TIMES)
    typer.echo(said(times))
    typer.echo(f"report   {found.report} (open it in a browser); its Findings in {found.output / 'findings'}")
    typer.echo("next     ranktuner compare --list    # the paper's tables as recipes; docs/compare.md: your own")


def times_of(folder: Path, began: float, ended: float) -> Finding:
    """Return the Finding `demo-times`: how long this call and the earlier ones took, and every cell.

    Args:
        folder: of the result, with its record of the cells.
        began: when this call began, in seconds since 1970.
        ended: and when it was done.
    """
    from ranktuner.findings import Finding, provenance

    manifest = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    listed = {one["key"]: one for one in manifest["cells"] if one.get("key")}
    done = {key: json.loads((Path(one["folder"]) / "done.json").read_text("utf-8")) for key, one in listed.items()}
    calls = list(Finding.load(folder / TIMES).numbers["calls"]) if (folder / TIMES).exists() else []
    # Cells are shared by all recipes and folders: what was there before this call may come from another.
    made = sum(facts["ended"] >= began for facts in done.values())
    calls.append({"seconds": round(ended - began, 1), "cells_made": made})
    return Finding(
        kind="demo-times",
        title="How long the demo took",
        n=len(done),
        numbers={"calls": calls, "cells": [_cell(one, done[key]) for key, one in listed.items()]},
        protocol={"unit": "cell", "seconds": "by the clock; a call is everything from start to report"},
        provenance=provenance(hardware=hardware()),
    )


def _cell(entry: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    facts = {key: entry[key] for key in ("key", "stage", "label", "name")}
    return {**facts, "seconds": round(done["seconds"], 1), "tokens": done.get("tokens")}


def said(times: Finding) -> str:
    """Return one line: this call, and what every stage took when it was made."""
    last = times.numbers["calls"][-1]
    stages = [(name, [c["seconds"] for c in times.numbers["cells"] if c["stage"] == name]) for name in STAGES]
    parts = ", ".join(f"{len(found)} x {name} {sum(found):.0f} s" for name, found in stages if found)
    made = (
        f"{last['cells_made']} of {times.n} cells made now, the rest was there"
        if last["cells_made"] < times.n
        else parts
    )
    return f"time     {last['seconds']:.0f} s ({made})"


def hardware() -> dict[str, Any]:
    """Return what the times were taken on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return {"cpu": model, "cores": os.cpu_count(), "gpu": Path("/dev/nvidia0").exists()}
