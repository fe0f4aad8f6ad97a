"""Sources -> rows: files, folders of files or a data set of the hub as one sequence, every row checked beforehand."""

from __future__ import annotations

import difflib
import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from ranktuner.data.records import SUFFIXES, Mapped, Record, Records, read_records
from ranktuner.data.shapes import Row, RowOptions, shape_of, shapes_for_people, to_row
from ranktuner.errors import DataError, missing_extra

__all__ = ["Row", "RowOptions", "Rows", "open_rows", "read_hub"]


class Rows:
    """All rows of some files, in file order: a sequence that reads each row when it is asked for.

    `skipped` counts rows that were passed over as empty (`RowOptions.skip_empty`).
    """

    def __init__(self, name: str, files: Sequence[tuple[str, Records]], options: RowOptions) -> None:
        self.name, self.options = name, options
        self._files = list(files)
        self._starts = [0, *accumulate(len(records) for _, records in self._files)]
        self.shape = self._find_shape()
        total = self._starts[-1] if options.limit is None else min(options.limit, self._starts[-1])
        self._kept = self._check(total)
        self.skipped = total - len(self._kept)
        if not self._kept:
            raise DataError(f"{name}: every one of its {total} rows is empty; there is nothing to learn from")

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> Row:
        row = self._read(self._kept[index])
        assert row is not None, "the check keeps no empty row"
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    @property
    def fingerprint(self) -> str:
        """A digest of the content and of how it is read; the place of the files does not enter."""
        digest = hashlib.sha256()
        for _, records in self._files:
            digest.update(records.digest.encode())
        o = self.options
        digest.update(repr((self.shape, o.limit, o.skip_empty, o.clean and o.clean.__name__)).encode())
        return digest.hexdigest()[:16]

    @property
    def on_disk(self) -> bool:
        """Whether the rows together are too large to hold in memory."""
        files = [records.path for _, records in self._files if records.path.is_file()]
        return sum(path.stat().st_size for path in files) > self.options.large_bytes

    def _find_shape(self) -> tuple[str, ...]:
        for name, records in self._files:
            if len(records):
                return shape_of(records[0], f"{name}:{records.number(0)}", self.options)
        raise DataError(f"{self.name}: no rows; expected at least one record with {shapes_for_people()}")

    def _locate(self, index: int) -> tuple[str, Record]:
        at = bisect_right(self._starts, index) - 1
        name, records = self._files[at]
        local = index - self._starts[at]
        return f"{name}:{records.number(local)}", records[local]

    def _read(self, index: int) -> Row | None:
        where, record = self._locate(index)
        return to_row(record, where, self.shape, self.options)

    def _check(self, total: int) -> Sequence[int]:
        """Read every row once, so that a bad one is met before a model is loaded; return those that are kept."""
        kept = [i for i in range(total) if self._read(i) is not None]
        return range(total) if len(kept) == total else kept


def open_rows(source: str | Path | Sequence[str | Path], options: RowOptions | None = None) -> Rows:
    """Return the rows of files, folders of files, or a data set of the hub.

    Args:
        source: a file, a folder (all its data files, by name), a hub id such as `owner/name`, or a list of these.
        options: how to read them.

    Returns:
        The rows in a fixed order, checked one by one.
    """
    sources = [source] if isinstance(source, (str, Path)) else list(source)
    files = [file for one in sources for file in _open_source(one, options or RowOptions())]
    return Rows(", ".join(str(s) for s in sources), files, options or RowOptions())


def _open_source(source: str | Path, options: RowOptions) -> list[tuple[str, Records]]:
    path = Path(source).expanduser()
    if path.is_file():
        return [(path.name, read_records(path, options.large_bytes))]
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in SUFFIXES)
        if not found:
            raise DataError(f"{path}: the folder holds no file ending in {', '.join(sorted(SUFFIXES))}")
        return [(p.relative_to(path).as_posix(), read_records(p, options.large_bytes)) for p in found]
    text = str(source)
    if path.suffix.lower() in SUFFIXES or text.count("/") != 1 or text.startswith((".", "/", "~")):
        near = _beside(path)
        raise DataError(f"{path}: there is no such file or folder{near}; give a path, a preset or a hub id owner/name")
    return [(text, read_hub(text))]


def _beside(path: Path) -> str:
    names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return f" (there is {near[0]!r} beside it)" if near else ""


def read_hub(name: str, config: str | None = None, split: str = "train") -> Mapped:
    """Return the records of a data set of the hub, memory-mapped by `datasets`."""
    try:
        import datasets
    except ImportError as error:
        raise missing_extra("datasets", "train", f"Reading {name} from the hub") from error
    try:
        dataset = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # every cause (no network, no such name, no access) has the same way out
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{name}: neither a file nor a folder here, and the hub did not give it ({reason}); "
            "give the path of a local copy"
        ) from None
    digest = hashlib.sha256(f"{name} {config} {split} {dataset._fingerprint}".encode()).hexdigest()
    return Mapped(Path(name), dataset, digest)
