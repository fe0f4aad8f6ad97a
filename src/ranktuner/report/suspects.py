"""Suspicious rows: what `ranktuner inspect data` found, with the passage marked in its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from ranktuner.report.figures.base import Table
from ranktuner.report.sources import Located
from ranktuner.report.writing import num, sentence, visible

MOST = 50
AROUND = 500
"""Characters kept on each side of the marked passage."""


@dataclass(frozen=True)
class Suspect:
    """One row as the page shows it."""

    about: Markup
    prompt: str | None
    text: Markup


def suspects(found: Sequence[Located]) -> list[Suspect]:
    """Return the most suspicious rows of all inspections, at most `MOST` of each."""
    return [_suspect(row) for one in found for row in one.finding.numbers["rows"][:MOST]]


def _suspect(row: Mapping[str, Any]) -> Suspect:
    span, worst = row.get("span"), row.get("worst_token")
    about = sentence(
        "<b>{}. Row {}</b>Score {}: {}. Mean NLL {} at mean entropy {} bits over {} tokens; {} of them sure and wrong.",
        num(row["place"], "count"),
        str(row["id"]),
        num(row["score"]),
        row["reason"],
        num(row["mean_nll"]),
        num(row["mean_entropy_bits"]),
        num(row["tokens"], "count"),
        num(row["sure_and_wrong"], "percent"),
    )
    if worst:
        about += sentence(
            " Worst token “{}”: p {}, rank {} where {} was expected.",
            row["text"][worst["start"] : worst["end"]].strip(),
            num(worst["p"]),
            num(worst["rank"], "count"),
            num(worst["expected_rank"]),
        )
    prompt = row.get("prompt")
    return Suspect(about, visible(prompt) if prompt else None, marked(row["text"], span))


def marked(text: str, span: Mapping[str, Any] | None, around: int = AROUND) -> Markup:
    """Return the text with the span in `<mark>`, cut to its surroundings; offsets are code points of the text."""
    start, end = (span["start"], span["end"]) if span else (0, 0)
    first, last = max(0, start - around), min(len(text), end + around)
    before = ("… " if first else "") + visible(text[first:start])
    after = visible(text[end:last]) + (" …" if last < len(text) else "")
    middle = Markup("<mark>{}</mark>").format(visible(text[start:end])) if span else Markup("")
    return Markup("{}{}{}").format(escape(before), middle, escape(after))


def planted_table(found: Sequence[Located]) -> Table | None:
    """Return precision and recall on noise that was planted on request, or None where none was."""
    kinds = [kind for one in found for kind in (one.finding.numbers.get("planted") or {}).get("kinds", [])]
    if not kinds:
        return None
    shares = ("row_precision", "row_recall", "span_precision", "span_recall")
    head = ["planted", "rows", "planted rows", "row precision", "row recall", "span precision", "span recall", "AUC"]
    rows = [
        [
            k["kind"],
            num(k["rows"], "count"),
            num(k["planted"], "count"),
            *(num(k[s], "percent") for s in shares),
            num(k["auc"]),
        ]
        for k in kinds
    ]
    return Table(head, rows)
