"""Findings of a kind that has no figure: their numbers as a table, so that nothing measured is dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ranktuner.findings import Finding
from ranktuner.report.figures.base import Table
from ranktuner.report.writing import num

MOST = 60


def table(finding: Finding) -> Table:
    """Return the numbers of any Finding as rows of (name, value), at most `MOST`."""
    rows = list(_leaves(finding.numbers))
    return Table(["number", "value"], rows[:MOST])


def _leaves(tree: Any, name: str = "") -> Iterator[list[Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            yield from _leaves(value, f"{name}[{i}]")
    elif isinstance(tree, bool) or tree is None or isinstance(tree, str):
        yield [name, "" if tree is None else str(tree)]
    else:
        yield [name, num(tree)]
