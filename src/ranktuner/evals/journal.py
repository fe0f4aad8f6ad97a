"""A file of JSON lines that only grows: what is in it stays, whatever happens to the process that writes.

The first line is a header that says what the file is. Each further line is written by one call of the operating
system, so that a killed process loses at most the line it was writing; that torn end is cut off when the file is
opened again. Data is forced to the disk every few seconds and at the end: only a power failure can cost those seconds,
and what is lost is made again, since resuming goes by what is missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ranktuner.errors import DataError, InputError
from ranktuner.lock import THIS, HeldError, Lock

SYNC_SECONDS = 2.0
"""Longest time that finished lines stay in the operating system's memory only."""


class Journal:
    """One writer's hold on a file of JSON lines; a context manager."""

    def __init__(self, path: str | Path, header: Mapping[str, Any], say: Callable[[str], None] = print) -> None:
        """Open or start the file, alone.

        Args:
            path: the file; its folder is made.
            header: the first line of a new file; of an old one, see `self.header`.
            say: is told when a torn line was cut off.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        try:
            self.repaired = _cut_torn_end(self.path, say)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._synced = time.monotonic()
            if os.fstat(self._file).st_size == 0:
                self.append(header)
            self.header: dict[str, Any] = read_header(self.path)
        except BaseException:
            self._lock.release()
            raise

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line; it survives the death of this process from here on."""
        line = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "surrogatepass")
        written = os.write(self._file, line)
        while written < len(line):  # a full disk raises here; a signal only shortens the write
            written += os.write(self._file, line[written:])
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def begin_again(self, header: Mapping[str, Any]) -> None:
        """Put another header in the place of everything; for a file that holds nothing else."""
        os.ftruncate(self._file, 0)
        self.append(header)
        self.header = read_header(self.path)

    def sync(self) -> None:
        """Force what was written to the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Force the rest to the disk and let others have the file."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
            self._file = -1
            self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _locked(path: Path) -> Lock:
    """Return the right to write a journal: a lock on a hidden file beside it."""
    try:
        return Lock(path.with_name(f".{path.name}.lock"))
    except HeldError as owner:
        if str(owner) == THIS:
            raise InputError(f"{path} is already open for writing in this process: close it first") from None
        raise InputError(
            f"{path} is being written by {owner}: two writers would mix their lines; wait for it, or give this run "
            "another --output"
        ) from None


def read_header(path: Path) -> dict[str, Any]:
    """Return the first line of a journal."""
    if not path.exists():
        raise DataError(f"{path}: no such file; expected one written by `ranktuner eval`")
    with path.open("rb") as file:
        return _parse(file.readline(), path, 1)


def read_records(path: Path, say: Callable[[str], None] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines after the header; a torn last line is left out and said, a broken one before it is an error."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                if say:
                    say(f"{path}: line {number} is torn (its writer was stopped); it is left out")
                return
            if number > 1:
                yield _parse(line, path, number)


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise DataError(
            f"{path}, line {number}: not JSON ({error}): the file was changed by something else; restore it, or remove "
            "that line and run the same command again, which makes only what is missing"
        ) from error
    if not isinstance(record, dict):
        raise DataError(f"{path}, line {number}: found {type(record).__name__}, expected a JSON object")
    return record


def _cut_torn_end(path: Path, say: Callable[[str], None]) -> int:
    """Cut off a last line that was not finished; return the number of bytes cut."""
    if not path.exists() or path.stat().st_size == 0:
        return 0
    with path.open("r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            cut = file.read(end - start).rfind(b"\n")
            if cut >= 0:
                end = start + cut + 1
                break
            end = start
        if end < size:
            say(
                f"{path}: the last line was torn (its writer was stopped); {size - end} bytes cut off, to be made again"
            )
            file.truncate(end)
        return size - end


def set_aside(path: Path) -> Path:
    """Rename a journal out of the way, whole, and return its new name; nothing is ever deleted."""
    lock = _locked(path)
    try:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        names = (path.with_name(f"{path.name}.{stamp}{suffix}.old") for suffix in ("", *(f"-{i}" for i in range(99))))
        aside = next(name for name in names if not name.exists())
        path.rename(aside)
        return aside
    finally:
        lock.release()
