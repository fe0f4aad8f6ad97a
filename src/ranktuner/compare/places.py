"""Cells and places: a piece of work named by what determines its result, and where models and data are. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from ranktuner.data.presets import split_source
from ranktuner.data.records import SUFFIXES, file_digest
from ranktuner.errors import DataError, InputError, nearest
from ranktuner.evals.generators.fingerprint import digest_of

LAYOUT = 1
"""Raised when cells of the same key would hold something else than before."""
MADE = ("smollm2", "tiny")
"""Names of models that are fetched or made, not found."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One piece of work; its result lies in a folder that is named by its key and shared by all recipes."""

    kind: str
    """model, problems, task, held-out, train, eval or diagnose."""
    inputs: Mapping[str, Any]
    """Exactly what determines the result, as JSON values; what comes from other cells stands in `needs`."""
    job: Any
    """What doing it takes beyond that: see `work`."""
    needs: tuple[Cell, ...] = ()

    @cached_property
    def key(self) -> str:
        """The cell's name: a digest of its inputs, of the keys of what it needs, and of RankTuner's version."""
        facts = [LAYOUT, version(), self.kind, self.inputs, [cell.key for cell in self.needs]]
        text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.key}"


@dataclass(frozen=True)
class Place:
    """A model or data: as the user named it, or inside the folder of a cell that makes it."""

    path: str
    cell: Cell | None = None
    identity: str = field(default="", repr=False)
    """What tells its content from another's, where no cell makes it."""

    def at(self, cells: Path) -> str:
        """Return the path or hub id, given the folder of all cells."""
        return str(cells / self.cell.name / self.path) if self.cell else self.path

    @property
    def facts(self) -> str:
        """Return what goes into the key of a cell that uses it."""
        return f"{self.cell.key}/{self.path}" if self.cell else self.identity


@cache
def version() -> str:
    """Return RankTuner's version: another one may give other numbers."""
    try:
        return metadata.version("ranktuner")
    except metadata.PackageNotFoundError:
        return "unknown"


def model_place(name: str) -> Place:
    """Return the place of a model folder or hub id; what cannot be one is refused before anything runs."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).exists() for file in ("config.json", "adapter_config.json")):
            raise InputError(f"model {name}: no config.json in this folder; expected a model folder")
        return Place(str(folder), identity=f"sha256:{_model_digest(folder.resolve(), _state(folder))}")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise InputError(
            f"model {name}: there is no such folder; give a model folder, a hub id such as owner/name, or "
            f"{' or '.join(MADE)}; {nearest(name, MADE)}"
        )
    return Place(name, identity=f"hub:{name}")


def data_place(source: str) -> Place:
    """Return the place of a file, folder, hub id or preset (`gsm8k`, `gsm8k:FILE`)."""
    preset, path = split_source(source)
    prefix = f"{preset}:" if preset else ""
    if not path:
        return Place(source, identity=f"hub:{source}")
    here = Path(path).expanduser()
    if here.is_file():
        return Place(source, identity=f"{prefix}sha256:{_file_digest(here.resolve(), _state(here))}")
    if here.is_dir():
        files = sorted(p for p in here.rglob("*") if p.is_file() and p.suffix.lower() in SUFFIXES)
        parts = [f"{p.relative_to(here).as_posix()}={_file_digest(p.resolve(), _state(p))}" for p in files]
        return Place(source, identity=f"{prefix}sha256:{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}")
    if preset or here.suffix.lower() in SUFFIXES or path.count("/") != 1 or path.startswith((".", "/", "~")):
        raise DataError(f"{source}: there is no such file or folder; give a path, a preset or a hub id owner/name")
    return Place(source, identity=f"hub:{source}")


def content_of(path: Path) -> str:
    """Return the digest of a file."""
    return _file_digest(path.resolve(), _state(path))


def _state(path: Path) -> tuple[int, ...]:
    """Size and time of a path or of the files in it: while they stay the same, so does a digest in this process."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple(number for file in files for number in (file.stat().st_size, file.stat().st_mtime_ns))


@cache
def _file_digest(path: Path, state: tuple[int, ...]) -> str:
    return file_digest(path)


@cache
def _model_digest(path: Path, state: tuple[int, ...]) -> str:
    return digest_of(path)
