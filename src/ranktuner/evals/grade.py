"""From stored samples to stored grades: apart from generating, as often as one likes, never twice for the same answer.

A grade file stands beside a sample store. Its header names what the verdicts depend on (grader, golds, version, time
limit); when one of them has changed, the file is set aside and everything is graded again.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ranktuner.errors import DataError, InputError
from ranktuner.evals.graders import Grader, grader
from ranktuner.evals.journal import Journal, read_header, read_records, set_aside
from ranktuner.evals.records import VERDICTS, Grade, Problem, Sample
from ranktuner.findings import provenance

SCHEMA = 1
"""Version of the grade file's layout."""

CANCEL_SECONDS = 15.0
"""How long an interrupted run waits for the answers that are being graded."""

Key = tuple[str, int]
Graded = Callable[[Sample, Grade], None]


@dataclass(frozen=True)
class Limits:
    """What grading may use."""

    workers: int = 2
    seconds: float | None = None
    """For one answer; None is the grader's own."""
    allow_unsafe: bool = False
    """Run code without a sandbox where there is none; only the code grader asks."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"--workers {self.workers}: expected at least 1")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise InputError(f"--grade-seconds {self.seconds:g}: expected a time above 0")


def grade_function(name: str, limits: Limits) -> Callable[[Iterable[tuple[Problem, Sample]]], Iterator[Grade]]:
    """Return the grader of this name with the limits filled in."""
    function: Grader = grader(name)
    options: dict[str, Any] = {"workers": limits.workers}
    if limits.seconds is not None:
        options["seconds"] = limits.seconds
    if name == "code":
        options["allow_unsafe"] = limits.allow_unsafe
    return lambda items: function(items, **options)


def digest_of(sample: Sample) -> str:
    """Return what ties a grade to the answer it judges."""
    return hashlib.sha256(f"{sample.finish}\x1f{sample.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


class GradeBook:
    """One task's grades on disk, held by one writer; a context manager."""

    def __init__(
        self,
        path: str | Path,
        *,
        task: str,
        grader: str,
        golds: str,
        limits: Limits,
        say: Callable[[str], None] = print,
    ) -> None:
        """Open or start the grades; a file made with another grader, other golds or another version is set aside.

        Args:
            path: the file.
            task: the task's name.
            grader: the grader's name.
            golds: digest of the problems as graded.
            limits: the time limit is part of what a verdict depends on.
            say: is told what was set aside, and of repairs.
        """
        path = Path(path)
        versions = provenance()["versions"]
        basis = {
            "task": task,
            "grader": grader,
            "golds": golds,
            "versions": {name: versions.get(name) for name in ("ranktuner", "math-verify")},
            "seconds": limits.seconds,
        }
        if path.exists() and path.stat().st_size:
            old = read_header(path)
            changed = [name for name, value in basis.items() if old.get(name) != value]
            if changed or old.get("ranktuner") != "grades":
                say(f"{path}: made with another {', '.join(changed)}; set aside as {set_aside(path).name}")
        self._journal = Journal(path, {"ranktuner": "grades", "schema": SCHEMA, **basis}, say)
        try:
            self.done = {key: (text, grade) for key, text, grade in read_grades(path)}
        except BaseException:
            self._journal.close()
            raise

    def add(self, sample: Sample, grade: Grade) -> None:
        """Append one grade."""
        text = digest_of(sample)
        record = {"problem": sample.problem, "index": sample.index, "text": text, **asdict(grade)}
        self._journal.append(record)
        self.done[sample.problem, sample.index] = (text, grade)

    def has(self, sample: Sample) -> bool:
        """Return whether this very answer is graded."""
        found = self.done.get((sample.problem, sample.index))
        return found is not None and found[0] == digest_of(sample)

    def grades(self) -> dict[Key, Grade]:
        """Return every grade by (problem, index)."""
        return {key: grade for key, (_, grade) in self.done.items()}

    def close(self) -> None:
        """Force everything to disk and let others write."""
        self._journal.close()

    def __enter__(self) -> GradeBook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_grades(path: Path) -> Iterator[tuple[Key, str, Grade]]:
    """Yield (key, digest of the answer, grade); a later line for the same key stands for a later answer."""
    for record in read_records(path):
        try:
            grade = Grade(record["verdict"], record["answer"], record["why"])
            key = (record["problem"], record["index"])
            text = record["text"]
        except KeyError as error:
            raise DataError(f"{path}: a grade without {error}: remove the file and run `ranktuner grade`") from error
        if grade.verdict not in VERDICTS:
            raise DataError(f"{path}: verdict {grade.verdict!r}; expected one of {', '.join(VERDICTS)}")
        yield key, text, grade


class Grading:
    """Grades in a thread of its own while samples are still being generated."""

    def __init__(
        self, book: GradeBook, problems: Mapping[str, Problem], grader: str, limits: Limits, graded: Graded
    ) -> None:
        """Start; `graded` is called with every sample and its grade, in this thread of its own."""
        self._book, self._problems, self._graded = book, problems, graded
        self._queue: queue.SimpleQueue[Sample | None] = queue.SimpleQueue()
        self._given: deque[Sample] = deque()
        self._cancelled = False
        self._error: BaseException | None = None
        # Made here, not in the thread: a missing package or sandbox is an error before anything is generated.
        self._grades = grade_function(grader, limits)(self._items())
        self._thread = threading.Thread(target=self._run, name="grading", daemon=True)
        self._thread.start()

    def add(self, sample: Sample) -> None:
        """Hand over a sample; one that is graded already, or whose problem is not asked for now, is left alone."""
        if sample.problem in self._problems and not self._book.has(sample):
            self._queue.put(sample)

    def finish(self) -> None:
        """Wait until everything is graded; raises what stopped the grader."""
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stop soon: what is not graded yet stays for the next time."""
        self._cancelled = True
        self._queue.put(None)
        self._thread.join(CANCEL_SECONDS)

    def _items(self) -> Iterator[tuple[Problem, Sample]]:
        while (sample := self._queue.get()) is not None and not self._cancelled:
            self._given.append(sample)
            yield self._problems[sample.problem], sample

    def _run(self) -> None:
        try:
            for grade in self._grades:
                sample = self._given.popleft()
                self._book.add(sample, grade)
                self._graded(sample, grade)
                if self._cancelled:
                    return
        except BaseException as error:  # kept for `finish`: generating goes on, its samples can be graded later
            self._error = error
