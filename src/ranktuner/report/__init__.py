"""The report: runs and Findings in, one self-contained page and figures for papers out. It draws and computes nothing.

from ranktuner.report import write, write_figures
write(["runs/gsm8k"], "report.html")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktuner.report.page import Page, build, write
    from ranktuner.report.paper import write_figures
    from ranktuner.report.sources import Sources, read

__all__ = ["Page", "Sources", "build", "read", "write", "write_figures"]

_HOME = {
    "Page": "page",
    "build": "page",
    "write": "page",
    "write_figures": "paper",
    "Sources": "sources",
    "read": "sources",
}


def __getattr__(name: str) -> Any:
    """Load the public names when they are first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
