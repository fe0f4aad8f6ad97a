"""Files -> records: JSON Lines, JSON, CSV and parquet behind one small interface, each record with its place.

A JSON Lines file is never held: one scan keeps the offset of every line, so any row of a file larger than
memory is one seek away and a global shuffle stays exact. Parquet and CSV above the same size go through the
memory-mapped tables of `datasets`.
"""

from __future__ import annotations

import csv
import hashlib
import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from ranktuner.errors import DataError, missing_extra

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
LARGE_BYTES = 512 * 2**20
"""Above this size a file stays on disk: JSON Lines by offsets, parquet and CSV as memory-mapped tables."""

Record = Mapping[str, Any]


class Records(Protocol):
    """What every kind of file answers: how many records, one of them, where it stands, and the content's digest."""

    path: Path
    digest: str

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Record: ...
    def number(self, index: int) -> int:
        """The record's number for people: the line in a text file, else its place from 1."""


class JsonLines:
    """A JSON Lines file by the offsets of its lines; blank lines are passed over and keep their line numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets, self._lines = array("Q"), array("Q")
        digest, offset = hashlib.sha256(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                digest.update(line)
                if line.strip():
                    self._offsets.append(offset)
                    self._lines.append(number)
                offset += len(line)
        self.digest = digest.hexdigest()
        self._file: Any = None

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Record:
        if self._file is None:
            self._file = self.path.open("rb")
        self._file.seek(self._offsets[index])
        return _parse_line(self._file.readline(), self.path, self._lines[index])

    def number(self, index: int) -> int:  # noqa: D102  (Records says it)
        return self._lines[index]

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()

    def __getstate__(self) -> dict[str, Any]:
        # A worker process opens its own handle: a shared one would share its position.
        return {**self.__dict__, "_file": None}


class Listed:
    """Records held in memory, with their numbers."""

    def __init__(self, path: Path, records: list[Record], numbers: list[int] | None = None) -> None:
        self.path = path
        self._records, self._numbers = records, numbers
        self.digest = file_digest(path)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Record:
        return self._records[index]

    def number(self, index: int) -> int:  # noqa: D102  (Records says it)
        return self._numbers[index] if self._numbers is not None else index + 1


class Mapped:
    """Records of a `datasets.Dataset`: memory-mapped, so a table larger than memory can be read in any order."""

    def __init__(self, path: Path, dataset: Any, digest: str) -> None:
        self.path, self._dataset, self.digest = path, dataset, digest

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Record:
        record: Record = self._dataset[index]
        return record

    def number(self, index: int) -> int:  # noqa: D102  (Records says it)
        return index + 1


def read_records(path: Path, large_bytes: int = LARGE_BYTES) -> Records:
    """Return the records of one file, chosen by its suffix.

    Args:
        path: a `.jsonl`, `.ndjson`, `.json`, `.csv` or `.parquet` file.
        large_bytes: from which size a file is not read into memory.

    Returns:
        The records; a line of a JSON Lines file is parsed when it is asked for.
    """
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(sorted(SUFFIXES))
        raise DataError(f"{path}: the suffix {path.suffix!r} is not one of {known}; rename or convert the file")
    if kind == "jsonl":
        return JsonLines(path)
    if kind == "json":
        return _read_json(path, large_bytes)
    if path.stat().st_size > large_bytes:
        return _read_mapped(path, kind)
    return _read_csv(path) if kind == "csv" else _read_parquet(path)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _parse_line(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line.rstrip())  # a break at its end would move the error's column to the next line's
    except json.JSONDecodeError as error:
        hint = "the line is cut short; was the file copied whole?" if not line.endswith(b"\n") else "mend the line"
        raise DataError(f"{path}:{number}: broken JSON at column {error.colno} ({error.msg}); {hint}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 (byte {error.start} of the line); save it as UTF-8") from None
    return _as_object(record, path, number)


def _as_object(record: object, path: Path, number: int) -> Record:
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise DataError(f'{path}:{number}: expected a JSON object such as {{"prompt": ..}}, found a {kind}')
    return record


def _read_json(path: Path, large_bytes: int) -> Listed:
    if (size := path.stat().st_size) > large_bytes:
        raise DataError(
            f"{path}: {size / 2**20:.0f} MiB in one JSON value would have to be read whole; "
            f"write one object a line (.jsonl), which is read row by row"
        )
    try:
        content = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        hint = "; it looks like one object a line: name it .jsonl" if error.msg == "Extra data" else ""
        raise DataError(f"{path}:{error.lineno}: broken JSON at column {error.colno} ({error.msg}){hint}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    if isinstance(content, dict):
        lists = [k for k, v in content.items() if isinstance(v, list) and v and isinstance(v[0], dict)]
        if len(lists) != 1:
            raise DataError(f"{path}: expected a list of objects (or one object that holds one), found a JSON object")
        content = content[lists[0]]
    if not isinstance(content, list):
        raise DataError(f"{path}: expected a list of objects, found a {type(content).__name__}")
    return Listed(path, [_as_object(record, path, n) for n, record in enumerate(content, start=1)])


def _read_csv(path: Path) -> Listed:
    csv.field_size_limit(2**31 - 1)
    records: list[Record] = []
    numbers: list[int] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            before = 1
            for record in reader:
                if None in record or None in record.values():
                    found = len(record.get(None) or []) or -sum(v is None for v in record.values())
                    raise DataError(
                        f"{path}:{before + 1}: {abs(found)} {'more' if found > 0 else 'fewer'} cells than the header's "
                        f"{len(reader.fieldnames or [])}; quote cells that hold commas or line breaks"
                    )
                records.append(record)
                numbers.append(before + 1)
                before = reader.line_num
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path}:{before + 1}: not readable as CSV ({error}); check its quotes") from None
    return Listed(path, records, numbers)


def _read_parquet(path: Path) -> Listed:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "train", f"Reading {path.name}") from error
    try:
        return Listed(path, pyarrow.parquet.read_table(path).to_pylist())
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from None


def _read_mapped(path: Path, kind: str) -> Mapped:
    try:
        import datasets
    except ImportError as error:
        raise missing_extra("datasets", "train", f"Reading {path.name} without holding it in memory") from error
    try:
        dataset = datasets.load_dataset(kind, data_files=str(path), split="train")
    except (datasets.exceptions.DatasetGenerationError, ValueError) as error:
        raise DataError(f"{path}: not readable as {kind} ({error.__cause__ or error})") from None
    return Mapped(path, dataset, file_digest(path))
