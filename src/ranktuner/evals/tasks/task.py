"""Task: problems, the prompt they are put in, how answers are drawn and who grades them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ranktuner.evals.records import Problem


@dataclass(frozen=True)
class Decoding:
    """How answers are drawn: the paper's protocol for the task, unless the user says otherwise."""

    temperature: float
    """0 is greedy."""
    top_p: float
    """Share of the probability kept before drawing; 1 keeps all."""
    max_new_tokens: int
    """Longest answer, in tokens; an answer cut here finishes as `length`."""


@dataclass(frozen=True)
class Prompt:
    """The words around a question. `{question}` (and `{choices}` for multiple choice) are filled in."""

    chat: str
    """The user's message for a model with a chat template."""
    plain: str
    """The text that a base model continues."""
    system: str | None = None
    """A system message, where the protocol has one."""
    stop: tuple[str, ...] = ()
    """Strings at which a plain continuation ends: a base model does not know when to stop."""


@dataclass(frozen=True)
class Source:
    """Where the rows are: names of files under --data-dir, and the hub."""

    files: tuple[str, ...]
    """Paths under the data folder, in the order they are tried; the first that exists is read."""
    hub: str = ""
    """Dataset id on the hub; empty: none."""
    config: str | None = None
    split: str = "test"
    licence: str = ""
    get: str = ""
    """How to get the file by hand."""


SHOWN = 3
"""How many mended golds a report spells out; all of them are in `repaired`."""


@dataclass(frozen=True)
class LoadReport:
    """What happened while a task was loaded; nothing is mended or dropped without being named here."""

    task: str
    source: str
    """The file or the hub id that was read."""
    sha256: str
    """Of the problems as graded (ids, questions, golds), so that two runs can be compared."""
    found: int
    expected: int | None
    repaired: tuple[tuple[str, str, str], ...] = ()
    """(problem, gold as found, gold as used)"""
    dropped: tuple[tuple[str, str], ...] = ()
    """(row, why)"""
    unaccepted: tuple[tuple[str, str], ...] = ()
    """(problem, why): golds that the grader does not accept against themselves; nobody can answer these."""

    @property
    def missing(self) -> int:
        """How many problems fewer than expected."""
        return max(0, (self.expected or 0) - self.found)

    def lines(self) -> list[str]:
        """Return the report as lines for people; the first is always there, the others only where they apply."""
        of = f" of {self.expected:,}" if self.expected is not None else ""
        lines = [f"{self.task}: {self.found:,}{of} problems from {self.source}"]
        if self.missing:
            lines.append(
                f"{self.task}: {self.missing:,} problems are missing: scores are over the {self.found:,} found"
            )
        lines += [f"{self.task}: {row} left out: {why}" for row, why in self.dropped]
        if self.repaired:
            shown = "; ".join(f"{p}: {before!r} -> {after!r}" for p, before, after in self.repaired[:SHOWN])
            more = f"; and {len(self.repaired) - SHOWN} more" if len(self.repaired) > SHOWN else ""
            lines.append(f"{self.task}: {len(self.repaired)} golds brought into one form: {shown}{more}")
        lines += [f"{self.task}: gold of {p} is not accepted against itself: {why}" for p, why in self.unaccepted]
        return lines


@dataclass(frozen=True)
class Loaded:
    """The problems of a task and what is to be said of them."""

    problems: tuple[Problem, ...]
    report: LoadReport


Row = Mapping[str, Any]
Reader = Callable[[Row, str], Problem]
"""(row, its number) -> problem; a row that cannot be read is a DataError."""


@dataclass(frozen=True)
class Task:
    """A benchmark: loader, prompt, decoding protocol and grader under one name."""

    name: str
    title: str
    grader: str
    """A name in `graders.GRADERS`."""
    prompt: Prompt
    decoding: Decoding
    n: int
    """Samples a problem, unless the user says otherwise."""
    ks: tuple[int, ...]
    """The k of pass@k that are reported."""
    expected: int | None
    """How many problems the whole set has; fewer is reported."""
    source: Source
    read: Reader = field(repr=False)
    """Row of the source -> Problem."""
    note: str = ""
    """Where protocol and choices come from."""
    folder: Path | None = None
    """Where a user's own task keeps its data; what it names there goes before a data folder given to `load`."""

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """Return the chat messages that put the problem to a model with a chat template."""
        system = [{"role": "system", "content": self.prompt.system}] if self.prompt.system else []
        return [*system, {"role": "user", "content": fill(self.prompt.chat, problem)}]

    def plain(self, problem: Problem) -> str:
        """Return the text that a base model (without chat template) continues."""
        return fill(self.prompt.plain, problem)

    def load(self, data_dir: str | Path | None = None, *, check: bool = True) -> Loaded:
        """Read the problems: from the file that a user's own task names, else from `data_dir`, else from the hub.

        Every gold is put to the task's own grader (remembered by checksum); one that is not accepted against itself is
        named in the report, never dropped: dropping it would move the denominator.

        Args:
            data_dir: folder that holds the task's file (see `source.files`).
            check: put the golds to the grader.

        Returns:
            problems and report.
        """
        from ranktuner.evals.tasks.loading import load

        return load(self, self.data_folder(data_dir), check=check)

    def data_folder(self, data_dir: str | Path | None = None) -> Path | None:
        """Return the folder that `load` reads from: a user's own task's, else `data_dir`; None for the hub."""
        own = self.folder is not None and any((self.folder / name).is_file() for name in self.source.files)
        return self.folder if own or data_dir is None else Path(data_dir)


def fill(template: str, problem: Problem) -> str:
    """Return the template with `{question}` and `{choices}` replaced; other braces (LaTeX has many) stay."""
    choices = problem.meta.get("choices", {})
    listed = "\n".join(f"{label}. {text}" for label, text in choices.items())
    parts = {"{choices}": listed, "{question}": problem.question}
    return re.sub(r"\{(?:choices|question)\}", lambda match: parts[match.group()], template)
