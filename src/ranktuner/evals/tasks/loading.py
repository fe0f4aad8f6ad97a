"""Files or the hub -> problems and a report: what was read, what was mended, what is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ranktuner.errors import DataError
from ranktuner.evals.records import Problem
from ranktuner.evals.tasks.golds import unaccepted
from ranktuner.evals.tasks.task import Loaded, LoadReport, Task

Located = tuple[str, Mapping[str, Any]]
"""(place for people, row)"""


def load(task: Task, data_dir: Path | None, *, check: bool) -> Loaded:
    """Return the problems of a task with a report; see `Task.load`."""
    source, rows = _open(task, data_dir)
    problems: list[Problem] = []
    dropped: list[tuple[str, str]] = []
    for index, (place, row) in enumerate(rows):
        try:
            problems.append(_read(task, row, str(index)))
        except DataError as error:
            dropped.append((place, str(error)))
    if not problems:
        if not dropped:
            raise DataError(f"{task.name}: {source} is empty; expected a row for each problem")
        why = f"the first row was refused: {dropped[0][1]}"
        raise DataError(f"{task.name}: no problem could be read from {source}; {why}; is it another set's file?")
    _refuse_same_ids(task, problems, source)
    repaired = tuple((p.id, str(p.meta["gold_as_found"]), str(p.gold)) for p in problems if "gold_as_found" in p.meta)
    report = LoadReport(
        task=task.name,
        source=source,
        sha256=_digest(problems),
        found=len(problems),
        expected=task.expected,
        repaired=repaired,
        dropped=tuple(dropped),
        unaccepted=tuple(unaccepted(task.grader, problems)) if check else (),
    )
    return Loaded(tuple(problems), report)


def _read(task: Task, row: Mapping[str, Any], number: str) -> Problem:
    try:
        return task.read(row, number)
    except KeyError as missing:
        raise DataError(f"no field {missing}; the row has {', '.join(map(repr, row)) or 'none'}") from None
    except (TypeError, AttributeError, IndexError) as error:
        raise DataError(f"not a row of this set ({error}); it has {', '.join(map(repr, row)) or 'no field'}") from None


def _open(task: Task, data_dir: Path | None) -> tuple[str, Iterator[Located]]:
    """Return where the rows come from, and the rows with their places."""
    if data_dir is None:
        return _open_hub(task)
    if not data_dir.is_dir():
        raise DataError(f"{task.name}: {data_dir} is no folder; expected the folder that holds {task.source.files[0]}")
    for name in task.source.files:
        if (data_dir / name).is_file():
            return str(data_dir / name), _file_rows(data_dir / name)
    looked = ", ".join(task.source.files)
    hub = f"; or leave the data folder out to read {task.source.hub} from the hub" if task.source.hub else ""
    raise DataError(f"{task.name}: {data_dir} holds none of {looked}; get it: {task.source.get}{hub}")


def _file_rows(path: Path) -> Iterator[Located]:
    if path.suffix == ".gz":
        from ranktuner.evals.humaneval import rows

        for line, row in rows(path):
            yield f"{path.name}:{line}", row
        return
    from ranktuner.data.records import read_records

    records = read_records(path)
    for index in range(len(records)):
        yield f"{path.name}:{records.number(index)}", records[index]


def _open_hub(task: Task) -> tuple[str, Iterator[Located]]:
    source = task.source
    if not source.hub:
        raise DataError(f"{task.name}: no hub has it; give the folder that holds {source.files[0]}")
    from ranktuner.data.rows import read_hub

    try:
        records = read_hub(source.hub, source.config, source.split)
    except DataError as error:
        raise DataError(
            f"{task.name}: {error}: a folder with {source.files[0]} as --data-dir; get it: {source.get}"
        ) from None
    name = "/".join(filter(None, [source.hub, source.config, source.split]))
    return name, ((f"{name}:{records.number(i)}", records[i]) for i in range(len(records)))


def _refuse_same_ids(task: Task, problems: list[Problem], source: str) -> None:
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(
                f"{task.name}: two problems of {source} have the id {problem.id!r}; ids name the stored samples, so "
                "give each problem its own (or none: then the row number is used)"
            )
        seen.add(problem.id)


def _digest(problems: list[Problem]) -> str:
    digest = hashlib.sha256()
    for p in problems:
        line = json.dumps([p.id, p.question, p.gold, dict(p.meta)], sort_keys=True, default=str)
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
