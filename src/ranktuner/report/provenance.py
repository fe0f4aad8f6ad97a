"""Provenance: what each number was made with, flat enough to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ranktuner.report.sources import Sources
from ranktuner.report.writing import visible

_LONG = 600


@dataclass(frozen=True)
class Origin:
    """One run or Finding and the facts about its making."""

    title: str
    path: str
    facts: list[tuple[str, str]]


def origins(sources: Sources) -> list[Origin]:
    """Return one entry for each run and Finding."""
    made = [Origin(f"Training: {run.name}", run.path, list(_flat(run.config))) for run in sources.runs]
    for found in sources.findings:
        finding = found.finding
        facts = [("kind", finding.kind), ("n", str(finding.n))]
        facts += [(f"protocol.{key}", text) for key, text in _flat(finding.protocol)]
        made.append(Origin(finding.title, found.path, facts + list(_flat(finding.provenance))))
    return made


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for i, item in enumerate(value):
                yield from _flat(item if isinstance(item, Mapping) else {"": item}, f"{name}[{i}].")
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    elif value is None or isinstance(value, bool):
        text = {None: "none", True: "yes", False: "no"}[value]
    else:
        text = str(value)
    return visible(text if len(text) <= _LONG else text[:_LONG] + " …")
