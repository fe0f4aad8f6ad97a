"""The sections of the page: which part of the sources goes where, and what the page says when a part is absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from ranktuner.findings import Finding
from ranktuner.report import comparison, other, overview, suspects
from ranktuner.report.figures import OF_KIND, evaluation, training
from ranktuner.report.figures.base import Figure, Table
from ranktuner.report.provenance import Origin, origins
from ranktuner.report.sources import Located, Sources
from ranktuner.report.writing import sentence

NOTHING = Markup("")


@dataclass(frozen=True)
class TitledTable:
    """A table with a heading of its own."""

    title: str
    table: Table
    note: Markup = NOTHING


@dataclass
class Section:
    """One section; what is empty is not drawn."""

    id: str
    title: str
    lead: Markup = NOTHING
    reading: Sequence[Markup] = ()
    """What the numbers show and what they do not."""
    facts: Sequence[overview.Fact] = ()
    tables: list[TitledTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    suspects: Sequence[suspects.Suspect] = ()
    origins: Sequence[Origin] = ()
    widget: str = ""
    """Template of an interactive part."""

    def __bool__(self) -> bool:
        return any((self.facts, self.tables, self.figures, self.suspects, self.origins, self.widget))


def sections(sources: Sources, has_tokens: bool, has_samples: bool) -> list[Section]:
    """Return the sections that have something to show, in reading order."""
    made = [
        Section("overview", "Overview", facts=overview.facts(sources)),
        _comparison(sources),
        _results(sources),
        Section("training", "Training", figures=training.figures(sources.runs)),
        _tokens(has_tokens),
        _diagnostics(sources),
        _suspects(sources),
        _samples(has_samples),
        _others(sources),
        Section(
            "provenance",
            "Provenance",
            origins=origins(sources),
            lead=Markup("What every number was made with: enough to make it again."),
        ),
    ]
    return [section for section in made if section]


def _comparison(sources: Sources) -> Section:
    found = sources.of("comparison")
    lead = Markup("Every method on the same problems: how often it solves them, and by how much rows differ.")
    section = Section("comparison", "Comparison", lead)
    for one in found:
        for title, table, note in comparison.tables(one.finding):
            named = f"{one.finding.title}: {title}" if len(found) > 1 else title
            section.tables.append(TitledTable(named, table, note))
        if section.tables:
            section.reading = list(dict.fromkeys([*section.reading, *comparison.reading(one.finding)]))
            section.figures += _drawn_apart(OF_KIND["comparison"], one, found)
    section.figures = unique(section.figures)
    return section


def _results(sources: Sources) -> Section:
    found = comparison.covered(sources.of("pass-at-k"), sources.of("comparison"))
    section = Section("results", "Results")
    if found:
        section.lead = Markup("How often a problem is solved, by the same protocol for every model.")
        section.tables = [TitledTable(title, table, note) for title, table, note in evaluation.tables(found)]
        section.figures = evaluation.figures(found)
    return section


def _tokens(has_tokens: bool) -> Section:
    lead = Markup(
        "The training text as the model sees it. Colour it by what the model says about each token, or by the weight "
        "that a method gives it."
    )
    return Section("tokens", "Tokens", lead, widget="tokens.html.j2" if has_tokens else "")


def _diagnostics(sources: Sources) -> Section:
    section = Section(
        "diagnostics", "Diagnostics", Markup("What probability, rank and entropy say about this model on this data.")
    )
    for kind, draw in OF_KIND.items():
        found = sources.of(kind) if kind != "comparison" else []
        for one in found:
            section.figures += _drawn_apart(draw, one, found)
    section.figures = unique(section.figures)
    return section


def _drawn_apart(draw: Callable[[Finding], list[Figure]], one: Located, found: Sequence[Located]) -> list[Figure]:
    """Draw one of the Findings of a kind; where there are several, each title says which one it is."""
    made = draw(one.finding)
    name = one.run or one.finding.title
    return [replace(figure, title=f"{figure.title}: {name}") for figure in made] if len(found) > 1 else made


def unique(figures: Sequence[Figure]) -> list[Figure]:
    """Number the identifiers that two Findings of one kind share."""
    seen: dict[str, int] = {}
    made = []
    for figure in figures:
        seen[figure.id] = seen.get(figure.id, 0) + 1
        made.append(figure if seen[figure.id] == 1 else replace(figure, id=f"{figure.id}-{seen[figure.id]}"))
    return made


def _suspects(sources: Sources) -> Section:
    found = sources.of("inspect-data")
    section = Section("suspects", "Suspicious rows", suspects=suspects.suspects(found))
    section.lead = sentence(
        "Rows with a passage that the rest does not lead to, or with an ending that does not follow, the most "
        "suspicious first. The list is for people to read: a rare but right row can stand in it."
    )
    planted = suspects.planted_table(found)
    if planted:
        note = Markup(
            "Noise was planted on request and looked for with the same score: how far to trust the list below."
        )
        section.tables = [TitledTable("Found again", planted, note)]
    return section


def _samples(has_samples: bool) -> Section:
    lead = Markup("What the models wrote, how it was judged, and why.")
    return Section("samples", "Samples", lead, widget="samples.html.j2" if has_samples else "")


KNOWN = {*OF_KIND, "tokens", "inspect-data", "pass-at-k", "samples"}


def _others(sources: Sources) -> Section:
    left = [found for found in sources.findings if found.finding.kind not in KNOWN]
    tables = [TitledTable(found.finding.title, other.table(found.finding)) for found in left]
    return Section("other", "Other findings", Markup("Kinds that have no figure of their own."), tables=tables)


ABSENT = {
    "training": "training curves (ranktuner train)",
    "results": "evaluation (ranktuner eval)",
    "tokens": "the token view (ranktuner diagnose tokens)",
    "diagnostics": "diagnostics (ranktuner diagnose)",
    "samples": "stored samples (ranktuner eval)",
}
"""Section -> what the footer says when it is missing, with the command that makes it."""


def absent(made: Sequence[Section]) -> str:
    """Return what a fuller report would have, or an empty text."""
    there = {section.id for section in made}
    there |= {"results"} if "comparison" in there else set()
    return ", ".join(text for name, text in ABSENT.items() if name not in there)
