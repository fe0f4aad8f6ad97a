"""The token table: one row of a parquet file for each supervised token, and its small record of numpy arrays.

Written in row groups as the tokens come, so that memory does not grow with the table; complete under its name, or not
there at all.
No torch here: the one pass of a model that fills a table is `collect.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ranktuner.errors import DataError, missing_extra, nearest

SCHEMA = 1
"""Version of the columns; raised when a column changes its meaning."""

ROW_GROUP = 32_768
"""Tokens held in memory before they are written: about 4 MB with ten methods."""

COLUMNS: dict[str, str] = {
    "row": "int32",
    "position": "int32",
    "token_id": "int32",
    "text": "text",
    "start": "int32",
    "end": "int32",
    "nll": "float32",
    "rank": "int32",
    "is_top": "bool",
    "entropy_bits": "float32",
    "p_max": "float32",
    "expected_rank": "float64",
    "s": "float64",
    "k": "float64",
    "indicator": "float64",
}
"""Column -> type. `row_id` stands beside `row` in the file; weights follow as `w:SPEC`, float32."""

WEIGHT = "w:"

Array = NDArray[Any]


@dataclass(frozen=True)
class TokenTable:
    """Supervised tokens in reading order, one array a column ([N] each); README.md says what each one is."""

    row: Array
    position: Array
    token_id: Array
    text: Array
    start: Array
    end: Array
    nll: Array
    rank: Array
    is_top: Array
    entropy_bits: Array
    p_max: Array
    expected_rank: Array
    s: Array
    k: Array
    indicator: Array
    weights: Mapping[str, Array]
    """Spec of a method -> [N]."""
    row_ids: tuple[str, ...]
    """Number of the row -> its id."""
    meta: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def p(self) -> Array:
        """Probability of the label, in float64."""
        return np.exp(-self.nll.astype(np.float64))

    def bounds_of_rows(self) -> list[tuple[int, int, int]]:
        """Return (row number, first token, one past the last token) of every row, in the table's order."""
        if not len(self):
            return []
        cuts = np.flatnonzero(np.diff(self.row)) + 1
        return [(int(self.row[a]), a, b) for a, b in pairwise([0, *cuts.tolist(), len(self)])]

    def row_text(self, first: int, last: int) -> str:
        """Return the supervised text of the tokens first .. last-1 (a whole row, or a piece of one)."""
        return "".join(self.text[first:last])

    def only(self, keep: Array) -> TokenTable:
        """Return the tokens where `keep` ([N] bool, or indices) holds; row numbers stay."""
        arrays = {name: getattr(self, name)[keep] for name in COLUMNS}
        return replace(self, **arrays, weights={name: w[keep] for name, w in self.weights.items()})


assert [f.name for f in fields(TokenTable)][: len(COLUMNS)] == list(COLUMNS)


class TableWriter:
    """Writes a token table piece by piece; the file appears under its name when the `with` block ends well.

    Args:
        path: the parquet file; a half-written one is called `PATH.part` and is removed on an error.
        methods: specs of the methods whose weights come with the tokens.
        meta: what is known before the first token; `finish` adds the rest.
    """

    def __init__(self, path: str | Path, methods: Sequence[str], meta: Mapping[str, Any]) -> None:
        self.path, self.methods, self.meta = Path(path), tuple(methods), dict(meta)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._part = self.path.with_name(self.path.name + ".part")
        self._pa, self._pq = _arrow()
        self._schema = _schema(self._pa, self.methods)
        self._writer: Any = self._pq.ParquetWriter(self._part, self._schema, compression="zstd")
        self._held: list[Any] = []
        self.tokens = 0

    def add(self, row_id: str, columns: Mapping[str, Array], weights: Mapping[str, Array]) -> None:
        """Add one row's tokens: every column of COLUMNS but `row_id`, and the weights of every method."""
        count = len(columns["nll"])
        arrays: dict[str, Any] = {name: columns[name] for name in COLUMNS}
        arrays |= {WEIGHT + spec: weights[spec] for spec in self.methods} | {"row_id": [row_id] * count}
        self._held.append(
            self._pa.table(
                [self._pa.array(arrays[f.name], type=f.type) for f in self._schema_plain()],
                names=[f.name for f in self._schema],
            )
        )
        self.tokens += count
        if sum(len(t) for t in self._held) >= ROW_GROUP:
            self._flush()

    def finish(self, **facts: Any) -> None:
        """Write what is still held and the metadata; called once, last."""
        self._flush()
        meta = {"schema": SCHEMA, **self.meta, **facts, "methods": list(self.methods), "tokens": self.tokens}
        self._writer.add_key_value_metadata({"ranktuner": json.dumps(meta, ensure_ascii=False)})
        self._writer.close()
        self._part.replace(self.path)

    def _schema_plain(self) -> list[Any]:
        plain = {"row_id", "text"}
        return [f.with_type(self._pa.string()) if f.name in plain else f for f in self._schema]

    def _flush(self) -> None:
        if self._held:
            # Strings become dictionaries only here: one dictionary for a row group, not one for each data row.
            joined = self._pa.concat_tables(self._held).combine_chunks()
            self._writer.write_table(joined.cast(self._schema), row_group_size=ROW_GROUP * 2)
            self._held = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._writer.is_open:
            self._writer.close()
        self._part.unlink(missing_ok=True)


def read_table(path: str | Path, columns: Iterable[str] | None = None) -> TokenTable:
    """Read a token table back.

    Args:
        path: the parquet file.
        columns: the columns to read (with `w:SPEC` for weights); the others are empty arrays. Default: all of them.

    Returns:
        The record; equal texts share one string, so that a million tokens with all columns take about 110 MB.
    """
    pa, pq = _arrow()
    meta = read_meta(path)
    names = pq.read_schema(path).names
    wanted = set(names if columns is None else columns) | {"row"}
    if unknown := wanted - set(names):
        name = sorted(unknown)[0]
        raise DataError(f"{path}: this token table has no column {name!r}; {nearest(name, names)}")
    parts: dict[str, list[Array]] = {name: [] for name in names if name in wanted}
    texts: dict[str, str] = {}
    with pq.ParquetFile(path) as file:
        row_ids = _row_ids(file)
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=list(parts)):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                parts[name].append(_numpy(pa, column, texts))
    arrays = {name: np.concatenate(found) if found else np.empty(0) for name, found in parts.items()}
    weights = {name.removeprefix(WEIGHT): arrays[name] for name in arrays if name.startswith(WEIGHT)}
    base = {name: arrays.get(name, np.empty(0)) for name in COLUMNS}
    return TokenTable(**base, weights=weights, row_ids=row_ids, meta=meta)


def concatenate(tables: Sequence[TokenTable]) -> TokenTable:
    """Return several tables of one model as one, rows numbered on; the metadata is the first's, its counts summed."""
    if len(tables) == 1:
        return tables[0]
    starts = np.cumsum([0, *(len(t.row_ids) for t in tables)])
    arrays = {name: np.concatenate([getattr(t, name) for t in tables]) for name in COLUMNS}
    arrays["row"] = np.concatenate([t.row + start for t, start in zip(tables, starts, strict=False)]).astype(np.int32)
    common = [m for m in tables[0].weights if all(m in t.weights for t in tables)]
    counts = {k: sum(t.meta[k] for t in tables) for k, v in tables[0].meta.items() if _is_count(k, v)}
    return TokenTable(
        **arrays,
        weights={m: np.concatenate([t.weights[m] for t in tables]) for m in common},
        row_ids=tuple(name for t in tables for name in t.row_ids),
        meta={**tables[0].meta, **counts},
    )


def _is_count(key: str, value: Any) -> bool:
    return key in ("rows", "tokens", "dropped", "truncated") or (key.endswith("_samples") and isinstance(value, int))


def read_meta(path: str | Path) -> dict[str, Any]:
    """Read a token table's metadata only; an error names what is wrong with the file."""
    _, pq = _arrow()
    try:
        found = (pq.read_metadata(path).metadata or {}).get(b"ranktuner")
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no such token table; make one with: ranktuner diagnose table --model M --data D -o FOLDER"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a token table: {error}") from error
    if found is None:
        raise DataError(f"{path}: a parquet file, but no token table: its footer has no 'ranktuner' metadata")
    meta: dict[str, Any] = json.loads(found)
    if meta.get("schema") != SCHEMA:
        raise DataError(
            f"{path}: token table of schema {meta.get('schema')!r}, this version reads {SCHEMA}: make it again with "
            f"{meta.get('command', 'ranktuner diagnose table')!r}"
        )
    return meta


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "report", "A token table") from error
    return pyarrow, pyarrow.parquet


def _schema(pa: Any, methods: Sequence[str]) -> Any:
    strings = pa.dictionary(pa.int32(), pa.string())
    types = {"text": strings, "bool": pa.bool_()}
    columns = [(name, types.get(kind) or pa.type_for_alias(kind)) for name, kind in COLUMNS.items()]
    columns.insert(1, ("row_id", strings))
    return pa.schema(columns + [(WEIGHT + spec, pa.float32()) for spec in methods])


def _row_ids(file: Any) -> tuple[str, ...]:
    ids: dict[int, str] = {}
    for batch in file.iter_batches(batch_size=ROW_GROUP, columns=["row", "row_id"]):
        row = batch.column(0).to_numpy(zero_copy_only=False)
        firsts = np.flatnonzero(np.diff(row, prepend=-1))
        ids |= dict(zip(row[firsts].tolist(), batch.column(1).take(firsts).to_pylist(), strict=True))
    return tuple(ids.get(number, str(number)) for number in range(max(ids, default=-1) + 1))


def _numpy(pa: Any, column: Any, texts: dict[str, str]) -> Array:
    if not pa.types.is_dictionary(column.type):
        array: Array = column.to_numpy(zero_copy_only=False)
        return array
    words = [texts.setdefault(word, word) for word in column.dictionary.to_pylist()]
    codes = column.indices.to_numpy(zero_copy_only=False)
    return np.array(words, dtype=object)[codes] if len(codes) else np.empty(0, dtype=object)
