"""Finding: numbers with their provenance, ready to save and to draw.

Evaluations and diagnostics return Findings; the report draws them and computes nothing. No torch here.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ranktuner.errors import DataError

SCHEMA = 1
"""Version of the JSON layout; raised when a field changes its meaning."""

_PACKAGES = ("ranktuner", "torch", "transformers", "trl", "accelerate", "peft", "math-verify", "vllm")


@dataclass(frozen=True)
class Finding:
    """What was found, on how many items, by which protocol, and with what it was made."""

    kind: str
    """Which diagnostic or evaluation made it: `noise`, `pass-at-k`, ...; the report chooses its figure by it."""
    title: str
    """One line for a heading."""
    n: int
    """How many items (tokens, rows, problems: `protocol["unit"]`) the numbers rest on."""
    numbers: Mapping[str, Any]
    """The result: JSON values only, nested as the kind needs."""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    """The settings that another person needs to get the same numbers."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, command, data fingerprints, seeds, time; see `provenance`."""

    def to_json(self) -> str:
        """Return the Finding as JSON text; an infinity or NaN is an error, since JSON has none."""
        return json_text({"schema": SCHEMA, **asdict(self)}) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write the JSON to `path` (whole or not at all) and return the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        # Half a surrogate pair, as broken data has it, is not UTF-8; written as \udXXX it is what JSON calls it.
        part.write_text(self.to_json(), encoding="utf-8", errors="backslashreplace")
        part.replace(path)
        return path

    @staticmethod
    def from_json(text: str, source: str = "text") -> Finding:
        """Read a Finding back; `source` names the file in messages."""
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{source}: not a Finding: broken JSON at line {error.lineno}: {error.msg}") from error
        if not isinstance(record, dict) or "schema" not in record or "kind" not in record:
            raise DataError(f"{source}: not a Finding: the keys 'schema' and 'kind' are missing")
        schema = record.pop("schema")
        if schema != SCHEMA:
            raise DataError(
                f"{source}: Finding of schema {schema!r}, this version reads {SCHEMA}: make it again with the "
                "command in its provenance, or read it with the version of ranktuner named there"
            )
        try:
            return Finding(**record)
        except TypeError as error:
            raise DataError(f"{source}: not a Finding of schema {SCHEMA}: {error}") from error

    @staticmethod
    def load(path: str | Path) -> Finding:
        """Read a Finding from a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such Finding") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not a Finding: not UTF-8 text; name a .json that ranktuner wrote") from error
        return Finding.from_json(text, source=str(path))


def json_text(value: Any, indent: str = "") -> str:
    """Return the value as JSON, one line for each key but for lists of plain values, which are one line whole."""
    below = indent + " "
    if isinstance(value, Mapping) and value:
        inner = [f"{below}{_plain(str(key))}: {json_text(one, below)}" for key, one in value.items()]
        return "{\n" + ",\n".join(inner) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        return "[\n" + ",\n".join(below + json_text(one, below) for one in value) + f"\n{indent}]"
    return _plain(value)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def provenance(**facts: Any) -> dict[str, Any]:
    """Return what a reader needs to make a number again: versions, machine, command, time, and the caller's facts."""
    program = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path("python")
    # `python -m ranktuner` is the command `ranktuner`.
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = " ".join([name, *sys.argv[1:]])
    return {
        "versions": dict(_versions()),
        "machine": f"{platform.system()} {platform.machine()}",
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    }


@cache
def _versions() -> dict[str, str]:
    """Versions of what may change a number; looked up once, since it means reading every package's papers."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def finite(value: float | None) -> float | None:
    """Return the value as JSON can hold it: None for a NaN or an infinity."""
    return None if value is None or not math.isfinite(value) else float(value)
