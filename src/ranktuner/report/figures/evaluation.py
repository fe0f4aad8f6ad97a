"""Evaluation: pass@k of every model on every task, side by side, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ranktuner.report.figures.base import Figure, Table
from ranktuner.report.sources import Located


def tables(found: Sequence[Located]) -> list[tuple[str, Table, Markup]]:
    return []


def figures(found: Sequence[Located]) -> list[Figure]:
    return []
