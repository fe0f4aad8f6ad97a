"""What a report is made of: run folders and Findings, read with care and without computing anything."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ranktuner.errors import DataError, RankTunerError
from ranktuner.findings import Finding

Made = TypeVar("Made")

METRICS = "metrics.jsonl"
RUN = "run.json"
_SNIFF = re.compile(rb'^\s*\{\s*"schema"\s*:')
_SKIP = re.compile(r"checkpoints?|checkpoint-.*|\..*|__pycache__")


@dataclass(frozen=True)
class Run:
    """One training run: its settings and one record a step."""

    name: str
    path: str
    config: Mapping[str, Any]
    """run.json, whole; empty while the run has not written it."""
    metrics: Sequence[Mapping[str, Any]]

    @property
    def ends(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The first and the last step that has a loss: a held-out evaluation may stand alone before and after."""
        full = [record for record in self.metrics if record.get("nll") is not None] or list(self.metrics)
        return full[0], full[-1]


@dataclass(frozen=True)
class Located:
    """A Finding, where it lay, and the run it belongs to (None: none)."""

    finding: Finding
    path: str
    run: str | None
    model: str | None = None
    """The model that an evaluation around it names."""

    @property
    def label(self) -> str:
        """Whose numbers these are: the run's method, else the model, else the Finding's own title."""
        named = self.run or self.model or self.finding.protocol.get("model")
        return short_name(str(named)) if named else self.finding.title


@dataclass
class Sources:
    """Everything a page draws. `notices` says what was left out or is unfinished, for the reader of the page."""

    runs: list[Run] = field(default_factory=list)
    findings: list[Located] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Located]:
        """Return the Findings of these kinds, in reading order."""
        return [found for found in self.findings if found.finding.kind in kinds]


def short_name(model: str) -> str:
    """Return the part of a model's path that tells it from others: the folder above `model`, else the last part."""
    parts = [part for part in re.split(r"[/\\]", model) if part]
    return parts[-2] if len(parts) > 1 and parts[-1] == "model" else parts[-1] if parts else model


LAYOUT_ERRORS = (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError)
"""What drawing numbers raises that are not laid out as their kind is."""


def without_strange(sources: Sources, make: Callable[[Sources], Made]) -> Made:
    """Return `make(sources)`; a Finding that it cannot take is left out and named in the notices, not a traceback."""
    notices = list(sources.notices)
    try:
        return make(sources)
    except RankTunerError:
        raise
    except LAYOUT_ERRORS:
        good = []
        for found in sources.findings:
            try:
                make(Sources(findings=[found]))
            except RankTunerError:
                good.append(found)  # of itself it is nothing to show, or too large: told of all together
            except LAYOUT_ERRORS as error:
                notices.append(
                    f"{found.path}: a {found.finding.kind!r} Finding whose numbers do not have the expected layout "
                    f"({type(error).__name__}: {error}); it is left out. Make it again: its provenance has the command."
                )
            else:
                good.append(found)
        if len(good) == len(sources.findings):
            raise  # no Finding is to blame
    sources.findings, sources.notices = good, notices
    if not sources.runs and not sources.findings:
        raise DataError(f"nothing to report on: {'; '.join(notices)}")
    return make(sources)


def read(paths: Iterable[str | Path], names: Mapping[Path, str] | None = None) -> Sources:
    """Read run folders (with everything below them) and single Finding files.

    A named file must be a Finding of this version. In a folder, what cannot be used is left out and named in `notices`;
    a folder with nothing to show is an error.

    Args:
        paths: the folders and files.
        names: folder of a run -> its name; default its method.
    """
    sources = Sources()
    places = {Path(path).resolve(): Path(path) for path in paths}
    if not places:
        raise DataError("nothing to report on: name at least one run folder or Finding file, e.g. runs/gsm8k")
    # What is named twice, or lies in a folder that is named too, is shown once: the folder knows whose it is.
    seen: set[Path] = set()
    for real, path in sorted(places.items(), key=lambda place: not places.keys().isdisjoint(place[0].parents)):
        if real in seen:
            continue
        if path.is_file():
            sources.findings.append(Located(Finding.load(path), _shown(path), None))
        elif path.is_dir():
            _read_folder(path, sources, seen)
        else:
            raise DataError(
                f"{path}: no such file or folder: name a run folder, a folder of them, or a Finding (.json)"
            )
    _name_apart(sources, {_shown(path): name for path, name in (names or {}).items()})
    return sources


def _shown(path: Path) -> str:
    """The path as the page shows it: relative, so that a shared report does not tell where it was made."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix() if not path.is_absolute() else Path(*path.parts[-3:]).as_posix().lstrip("/")


def _read_folder(top: Path, sources: Sources, seen: set[Path]) -> None:
    before = len(sources.runs) + len(sources.findings)
    notices = len(sources.notices)
    owners: dict[Path, str] = {}
    models: dict[Path, str] = {}
    for folder, names in _walk(top):
        seen.add(folder.resolve())
        record = _read_record(folder / RUN, sources.notices) if RUN in names else {}
        if "tasks" in record and METRICS not in names:
            models[folder] = str(record.get("model") or folder.name)
        elif METRICS in names or RUN in names:
            run = _read_run(folder, record, sources.notices)
            if run is not None:
                sources.runs.append(run)
                owners[folder] = run.path
        for name in sorted(names):
            if name.endswith(".json") and name != RUN and _SNIFF.match(_head(folder / name)):
                read_in = _read_finding(folder / name, _owner(folder, owners), _owner(folder, models), sources)
                seen |= {(folder / name).resolve()} if read_in else set()
    if len(sources.runs) + len(sources.findings) == before:
        why = sources.notices[notices:]
        found = f" ({'; '.join(why)})" if why else ""
        raise DataError(
            f"{top}: nothing to report on: expected {METRICS} of a training run or Findings (*.json){found}: "
            "name the folder that `ranktuner train`, `eval` or `diagnose` wrote"
        )


def _walk(top: Path) -> Iterator[tuple[Path, list[str]]]:
    for folder, below, names in os.walk(top):
        below[:] = sorted(name for name in below if not _SKIP.fullmatch(name))
        yield Path(folder), names


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(200)


def _owner(folder: Path, owners: Mapping[Path, str]) -> str | None:
    return next((owners[place] for place in (folder, *folder.parents) if place in owners), None)


def _read_finding(path: Path, run: str | None, model: str | None, sources: Sources) -> bool:
    try:
        finding = Finding.load(path)
    except DataError as error:
        sources.notices.append(f"Left out: {error}")
        return False
    sources.findings.append(Located(finding, _shown(path), run, model))
    return True


def _read_run(folder: Path, config: Mapping[str, Any], notices: list[str]) -> Run | None:
    where = _shown(folder)
    if not (folder / RUN).exists():
        notices.append(f"{where}/{RUN} is missing: the run is unfinished or was killed; its settings are not shown.")
    outcome = config.get("outcome", "finished")
    if outcome == "running":
        notices.append(f"{where}: the run is still going or was killed; what it has written so far is shown.")
    elif outcome != "finished":
        notices.append(f"{where}: the run did not finish ({outcome}); what it wrote is shown.")
    metrics = _read_metrics(folder / METRICS, notices)
    if not metrics:
        notices.append(f"{where}: the run has not finished a step yet; there is nothing to draw of its training.")
        return None
    return Run(name=_method(config) or folder.name, path=where, config=config, metrics=metrics)


def _read_record(path: Path, notices: list[str]) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: None)
    except (json.JSONDecodeError, UnicodeDecodeError):
        notices.append(f"{_shown(path)} is half written: its settings are not shown; resume the run to mend it.")
        return {}
    return config if isinstance(config, dict) else {}


def _read_metrics(path: Path, notices: list[str]) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    steps: dict[Any, Mapping[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=lambda name: None)
        except json.JSONDecodeError:
            if number == len(lines):
                notices.append(
                    f"{_shown(path)}: line {number} is cut off (the run was killed or is still writing); "
                    f"the lines before it are shown."
                )
                break
            raise DataError(
                f"{_shown(path)}: line {number} is not JSON: expected one object a step; remove the line or run again"
            ) from None
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise DataError(
                f"{_shown(path)}: line {number} has no whole number 'step': expected one object a step as `ranktuner "
                f"train` writes it; found {line[:60]!r}"
            )
        # A resumed run may write a step again; the later one is the one that counted.
        steps[record["step"]] = {**steps.get(record["step"], {}), **record}
    return [steps[step] for step in sorted(steps)]


def _method(config: Mapping[str, Any]) -> str | None:
    """The method's name wherever run.json keeps it: at the top or among the resolved settings."""
    for place in (config, config.get("config"), config.get("resolved"), config.get("settings")):
        if isinstance(place, Mapping) and isinstance(place.get("method"), str):
            return str(place["method"])
    return None


def _name_apart(sources: Sources, names: Mapping[str, str]) -> None:
    """Give runs of one method different names, and hang the Findings on the names."""
    unique = {run.path: names.get(run.path, run.name) for run in sources.runs}
    for tail in ({path: path.rsplit("/", 1)[-1] for path in unique}, {path: path for path in unique}):
        given = list(unique.values())
        twice = [path for path, name in unique.items() if given.count(name) > 1]
        unique |= {path: f"{unique[path]} ({tail[path]})" for path in twice}
    sources.runs = [Run(unique[run.path], run.path, run.config, run.metrics) for run in sources.runs]
    sources.findings = [
        replace(found, run=unique.get(found.run or "") or _run_of(found.model, sources.runs))
        for found in sources.findings
    ]


def _run_of(model: str | None, runs: Sequence[Run]) -> str | None:
    """The run that trained this model, by its path: an evaluation may lie anywhere."""
    return next((run.name for run in runs if model and f"/{run.path}/" in f"/{model}/"), None)
