"""A key-value cache whose rows come and go: finished rows leave at once, new ones take their place.

All rows end at the same column, so a step writes one column for all of them; a row that began later has its first
column further right, and a mask hides what is left of it. Buffers are written in place: nothing is copied at a step,
and a row leaves by moving the last row into its place. Wider buffers hold fewer rows: where the memory that was given
does not hold all, the youngest rows must go back and wait (their noise is theirs, so they come out the same later).

    column   first ......................... end
    row 0    p p p p p g g g g g g g g g g g |        p: prompt, g: generated
    row 1    . . . . . . p p p p g g g g g g |
    row 2    . . . . . . . . . . . p p p g g |
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = 128
"""Buffers grow by this many columns at a time."""


class Rows:
    """The rows of a running batch: where each begins, and the keys and values of every layer."""

    def __init__(self, most: int, budget: int, cell: int) -> None:
        """Prepare for at most `most` rows in at most `budget` bytes; memory is taken when rows are admitted.

        Args:
            most: rows.
            budget: bytes for keys and values.
            cell: bytes of one column of one row, over all layers; see `cell_of`.
        """
        from transformers import Cache

        self.most, self.budget, self.cell = most, budget, cell
        self.first = 0
        """First column that any row uses."""
        self.end = 0
        """The column that the next step writes."""
        self.columns = 0
        """Width of the buffers."""
        self.starts: list[int] = []
        """First column of each row."""
        self.layers: list[Any] = []
        self.cache = Cache(layers=self.layers)
        """What the model is given as `past_key_values`."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.starts)

    @property
    def capacity(self) -> int:
        """How many rows the buffers hold at their present width."""
        return self._capacity(self.columns)

    def _capacity(self, columns: int) -> int:
        return max(1, min(self.most, self.budget // (self.cell * max(columns, 1))))

    def free(self, width: int) -> int:
        """Return how many rows can be admitted whose longest prompt has this many tokens."""
        wider = (self.first if self.starts else 0) + width + COLUMNS
        columns = self.columns if self.end >= width and self.starts else max(self.columns, wider)
        return self._capacity(columns) - self.count

    def admit(self, prefilled: Any, picks: list[int], lengths: list[int]) -> None:
        """Add rows whose prompts were run together, padded on the left.

        Args:
            prefilled: the cache of that run.
            picks: for each new row its row in `prefilled`: one that appears n times is shared by n samples.
            lengths: for each new row its number of prompt tokens.
        """
        if not self.layers:
            self.layers.extend(_row_layer()(self) for _ in prefilled.layers)
        if not self.starts:
            self.first = self.end = 0
        width = max(lengths)
        if self.end < width:
            self._place(self.first + width - self.end)
        for layer, source in zip(self.layers, prefilled.layers, strict=True):
            if source.is_initialized:  # a layer that reads another layer's keys has none of its own
                layer.admit(source.keys[picks, :, -width:], source.values[picks, :, -width:])
        self.starts += [self.end - length for length in lengths]
        self.first = min(self.starts)

    def remove(self, rows: list[int]) -> None:
        """Take rows out. The last rows move into the gaps (`fill_gaps`, which the caller applies to its own lists)."""
        moves = fill_gaps(self.starts, rows)
        if moves:
            sources, targets = [source for source, _ in moves], [target for _, target in moves]
            for layer in self.layers:
                layer.move(sources, targets)
        self.first = min(self.starts, default=self.end)

    def mask(self, device: Any) -> Tensor | None:
        """Return the mask over the columns up to and with the next one; None where no row has a hidden column."""
        import torch

        if max(self.starts) == self.first:
            return None
        starts = torch.tensor(self.starts, device=device)
        return torch.arange(self.first, self.end + 1, device=device)[None] >= starts[:, None]

    def make_room(self) -> None:
        """See to it that the next column can be written, by moving the rows to the left or to wider buffers."""
        if self.end >= self.columns:
            self._place(0)

    def too_many(self) -> list[int]:
        """Return the rows, youngest first, that must leave before `make_room`: wider buffers would not hold them."""
        if self.end < self.columns:
            return []
        over = self.count - self._capacity(self._columns_at(0))
        return sorted(range(self.count), key=lambda row: -self.starts[row])[: max(0, over)]

    def _columns_at(self, first: int) -> int:
        """Return the buffers' width when the rows begin at this column: room for some steps more, little to spare."""
        needed = first + self.end - self.first + COLUMNS
        wide = self.columns > 2 * needed and self.capacity < self.most
        return needed if wide or needed - COLUMNS * 3 // 4 > self.columns else self.columns

    def _place(self, first: int) -> None:
        """Move all rows so that their first column is `first`."""
        columns = self._columns_at(first)
        for layer in self.layers:
            layer.place(first, columns)
        self.columns = columns
        self.starts = [start + first - self.first for start in self.starts]
        self.first, self.end = first, first + self.end - self.first


def cell_of(cache: Any) -> int:
    """Return the bytes that one token takes in all layers of a filled cache."""
    tensors = [t for layer in cache.layers if layer.is_initialized for t in (layer.keys, layer.values)]
    return sum(int(t.shape[1] * t.shape[3] * t.element_size()) for t in tensors)


def fill_gaps(items: list[Any], gone: list[int]) -> list[tuple[int, int]]:
    """Remove the positions `gone` from a list, in place, filling them from its end; return the moves (from, to)."""
    keep = len(items) - len(gone)
    spare = [i for i in range(keep, len(items)) if i not in set(gone)]
    moves = list(zip(spare, sorted(i for i in gone if i < keep), strict=True))
    for source, target in moves:
        items[target] = items[source]
    del items[keep:]
    return moves


@cache
def _row_layer() -> type:
    """Return the class of one layer's buffers. Made when first used: evals imports no torch."""
    from transformers.cache_utils import DynamicLayer

    class RowLayer(DynamicLayer):  # type: ignore[misc]
        """Keys and values of one layer, [capacity, heads, columns, head size]."""

        is_initialized: bool

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

        def admit(self, keys: Tensor, values: Tensor) -> None:
            rows, count, width = self.rows, self.rows.count, keys.shape[2]
            if not self.is_initialized:
                self.keys, self.values = (
                    t.new_zeros(rows.capacity, t.shape[1], rows.columns, t.shape[3]) for t in (keys, values)
                )
                self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
            for buffer, new in ((self.keys, keys), (self.values, values)):
                buffer[count : count + len(new), :, rows.end - width : rows.end] = new

        def place(self, first: int, columns: int) -> None:
            if self.is_initialized:
                self.keys = self._placed(self.keys, first, columns)
                self.values = self._placed(self.values, first, columns)

        def _placed(self, old: Tensor, first: int, columns: int) -> Tensor:
            rows = self.rows
            used = old[: rows.count, :, rows.first : rows.end]
            if columns != old.shape[2]:
                new = old.new_zeros(rows._capacity(columns), old.shape[1], columns, old.shape[3])
            else:
                new, used = old, used.clone()  # source and target overlap
            new[: rows.count, :, first : first + used.shape[2]] = used
            return new

        def move(self, sources: list[int], targets: list[int]) -> None:
            if self.is_initialized:
                span = slice(self.rows.first, self.rows.end)
                for buffer in (self.keys, self.values):
                    buffer[targets, :, span] = buffer[sources, :, span]

        def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            """Write the column of this step and return all that the rows use."""
            rows = self.rows
            view = slice(rows.first, rows.end + 1)
            for buffer, new in ((self.keys, keys), (self.values, values)):
                buffer[: rows.count, :, rows.end : rows.end + 1] = new
            return self.keys[: rows.count, :, view], self.values[: rows.count, :, view]

        def get_seq_length(self) -> int:
            return self.rows.end - self.rows.first

    return RowLayer
