"""`ranktuner doctor`: what is installed, which parts of RankTuner work with it, and why the others do not."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import typer

app = typer.Typer(add_completion=False)

# part -> (extra to install, packages it needs as name -> accepted version prefixes or None)
_PARTS: dict[str, tuple[str, dict[str, tuple[str, ...] | None]]] = {
    "attach, score": ("train", {"transformers": ("5.23",)}),
    "train": (
        "train",
        {"transformers": ("5.23",), "trl": ("1.16",), "accelerate": None, "peft": None, "datasets": None},
    ),
    "QLoRA": ("qlora", {"bitsandbytes": None, "peft": None}),
    "eval": ("eval", {"transformers": ("5.23",), "math-verify": ("0.9",)}),
    "eval with vLLM": ("vllm", {"vllm": None}),
    "report, figures": ("report", {"altair": None, "vl-convert-python": None, "jinja2": None}),
    "GGUF models": ("gguf", {"gguf": None}),
    "verl": ("verl", {"verl": ("0.9.1",), "tensordict": None}),
    "tensorboard": ("trackers", {"tensorboard": None}),
}


@app.command()
def doctor() -> None:
    """Say which versions, devices, extras and integrations are usable, and why not.

    Changes nothing and loads no model. Example: ranktuner doctor
    """
    from rich.markup import escape
    from rich.table import Table

    from ranktuner.cli import console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "part", "what was found", "what to do"):
        table.add_column(column, overflow="fold")
    for part, found, advice in [*_machine(), *(_part(p) for p in _PARTS), *_tools()]:
        table.add_row("[green]ok[/]" if not advice else "[yellow]--[/]", *map(escape, (part, found, advice)))
    console().print(table)


def version_of(package: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _part(part: str) -> tuple[str, str, str]:
    extra, needed = _PARTS[part]
    versions = {name: version_of(name) for name in needed}
    found = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        return part, found, f"pip install 'ranktuner[{extra}]'"
    for name, version in versions.items():
        accepted = needed[name]
        if accepted and not any(f"{version}.".startswith(f"{v}.") for v in accepted):
            return part, found, f"{name} {version} was not tested with this version; {' or '.join(accepted)} was"
    return part, found, _conflict(part)


def _conflict(part: str) -> str:
    """Known pairs of packages that install together and fail at run time."""
    trl = version_of("trl")
    if part == "verl" and trl and int(trl.split(".")[0]) >= 1 and int(trl.split(".")[1]) >= 13:
        return f"verl 0.9.1 fails at run time beside trl {trl}: use an environment of its own, or trl 1.12"
    return ""


def _machine() -> list[tuple[str, str, str]]:
    import torch

    devices = [f"cpu, {os.cpu_count()} cores, {torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        devices += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    rows = [
        ("ranktuner", f"{version_of('ranktuner') or 'not installed'}, Python {platform.python_version()}", ""),
        ("torch", f"{torch.__version__}; {'; '.join(devices)}", ""),
    ]
    bf16 = _guarded(lambda: torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if not torch.cuda.is_available():
        rows.append(("bf16", "fast on this CPU" if bf16 else "emulated on this CPU: fp32 may be faster", ""))
    return rows


def _tools() -> list[tuple[str, str, str]]:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    bubblewrap = shutil.which("bwrap")
    triton = find_spec("triton") is not None
    return [
        (
            "compiled row pass",
            "C++ compiler found" if compiler else "no C++ compiler",
            "" if compiler else "install g++: long runs on a CPU are faster with it",
        ),
        ("Triton kernel", "triton found; runs on CUDA" if triton else "absent", "" if triton else "pip install triton"),
        (
            "code sandbox",
            "bubblewrap found" if bubblewrap else "no bubblewrap",
            "" if bubblewrap else "install the system package bubblewrap: code tasks are refused without it",
        ),
    ]


def _guarded(question: Callable[[], Any]) -> bool:
    """Ask a question that a build of torch may not know."""
    try:
        return bool(question())
    except (AttributeError, RuntimeError):
        return False
