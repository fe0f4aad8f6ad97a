"""The folder of all cells: who does one now, which are done, and why one failed. No torch.

CELLS/KIND-KEY/           the result
CELLS/KIND-KEY/cell.json  what determined it
CELLS/KIND-KEY/done.json  written last, whole or not at all: only then is the cell done
CELLS/KIND-KEY/failed.json, error.txt    why the last try failed; gone when the next one begins
CELLS/KIND-KEY/.lock      held by the process that does it
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ranktuner.compare.places import Cell, version
from ranktuner.errors import NonFiniteError
from ranktuner.findings import finite
from ranktuner.lock import Lock
from ranktuner.train.folder import write_json

DONE, FAILED, ABOUT, ERROR, LOCK = "done.json", "failed.json", "cell.json", "error.txt", ".lock"


class Store:
    """All cells under one folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def folder(self, cell: Cell) -> Path:
        """Return the cell's folder, whether it is there or not."""
        return self.path / cell.name

    def done(self, cell: Cell) -> dict[str, Any] | None:
        """Return what is known of a finished cell (seconds, tokens, ...); None: it is not finished."""
        return _read(self.folder(cell) / DONE)

    def failed(self, cell: Cell) -> dict[str, Any] | None:
        """Return why the last try failed; None: there is none that failed."""
        return None if self.done(cell) is not None else _read(self.folder(cell) / FAILED)

    def state(self, cell: Cell) -> str:
        """Return done, failed, begun or to do."""
        if self.done(cell) is not None:
            return "done"
        if self.failed(cell) is not None:
            return "failed"
        return "begun" if (self.folder(cell) / ABOUT).exists() else "to do"

    @contextmanager
    def hold(self, cell: Cell) -> Iterator[Path]:
        """Have the cell alone; raises HeldError where another process has it."""
        folder = self.folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / LOCK)
        try:
            yield folder
        finally:
            lock.release()

    def begin(self, cell: Cell) -> None:
        """Note what the cell is, and forget how the last try failed."""
        folder = self.folder(cell)
        facts = {"kind": cell.kind, "key": cell.key, "ranktuner": version(), "inputs": cell.inputs}
        write_json(folder / ABOUT, {**facts, "needs": [one.name for one in cell.needs]})
        for name in (FAILED, ERROR):
            (folder / name).unlink(missing_ok=True)

    def finish(self, cell: Cell, facts: Mapping[str, Any]) -> None:
        """Mark the cell as done."""
        write_json(self.folder(cell) / DONE, {**facts, "ended": time.time()})

    def fail(self, cell: Cell, error: BaseException) -> dict[str, Any]:
        """Note why the cell failed, as far as the disk lets us; the run goes on either way."""
        said = str(error).strip() or type(error).__name__
        record = {"error": said, "type": type(error).__name__, "diverged": isinstance(error, NonFiniteError)}
        record["ended"] = finite(time.time())
        try:
            text = "".join(traceback.format_exception(error))
            (self.folder(cell) / ERROR).write_text(text, encoding="utf-8", errors="backslashreplace")
            write_json(self.folder(cell) / FAILED, record)
        except OSError:  # a full disk: that it failed is known to this run, and the next one tries again
            pass
        return record


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return record
