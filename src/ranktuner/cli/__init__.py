"""The menu: `ranktuner COMMAND ...`. Each command lives in its own module and is imported only when it is called.

A command's module has a typer application called `app`. Adding a command is one line in COMMANDS.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from ranktuner.errors import RankTunerError, nearest

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("ranktuner.cli.demo", "minutes: a small real model fine-tuned four ways, evaluated, and a report"),
    "train": ("ranktuner.cli.train", "fine-tune a model with token weights"),
    "merge": ("ranktuner.cli.train", "turn a LoRA run into a model folder"),
    "eval": ("ranktuner.cli.evaluate", "n samples a problem, graded: pass@k with intervals"),
    "grade": ("ranktuner.cli.evaluate", "grade the stored samples of an evaluation again"),
    "compare": ("ranktuner.cli.compare", "train, evaluate and diagnose several methods: one recipe, one report"),
    "diagnose": ("ranktuner.cli.diagnose", "token tables, and which tokens matter: noise, tightness, regimes, ..."),
    "inspect": ("ranktuner.cli.inspect_data", "rank the rows of training data by how suspicious they are"),
    "methods": ("ranktuner.cli.science", "list the token weightings, or explain one"),
    "weigh": ("ranktuner.cli.science", "the weight every method gives to one token"),
    "report": ("ranktuner.cli.report", "one self-contained page about runs, evaluations and diagnostics"),
    "figures": ("ranktuner.cli.report", "the same figures as SVG and PDF for papers"),
    "doctor": ("ranktuner.cli.doctor", "versions, devices, which extras work and why not"),
}
"""Name -> (module, one line of help), in the order of the menu."""


def _menu() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ranktuner COMMAND [ARGUMENTS]",
            "",
            "Fine-tune language models with token weights that calibrate probability by entropy.",
            "",
            "commands:",
            *lines,
            "",
            "ranktuner help COMMAND explains one; ranktuner --version prints the version.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command line; return the exit status (0 done, 1 an error of ours, 2 wrong usage, 130 interrupted)."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _run(argv: list[str]) -> int:
    if argv[:1] == ["help"] and len(argv) > 1:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_menu())
        return 0
    if argv[0] == "--version":
        from importlib.metadata import version

        print(f"ranktuner {version('ranktuner')}")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        hint = nearest(name, ("--help", "--version") if what == "option" else COMMANDS)
        print(f"ranktuner: there is no {what} {name!r}; {hint}", file=sys.stderr)
        return 2
    return run_command(name, rest)


def console() -> Any:
    """Return where tables are printed: as wide as the terminal, and unbroken into a pipe or a file."""
    from rich.console import Console

    whole = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=200 if whole else None)


def run_command(name: str, arguments: list[str]) -> int:
    """Import the command's module and run it, turning our errors into one readable line and an exit status."""
    import typer

    try:
        app = import_module(COMMANDS[name][0]).app
        command = typer.main.get_command(app)
        # A module with several commands is a group and needs the name; one with a single command is that command.
        command = getattr(command, "commands", {}).get(name, command)
        command.main(arguments, prog_name=f"ranktuner {name}")
    except RankTunerError as error:
        print(f"ranktuner {name}: {error}", file=sys.stderr)
        return 1
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
