"""Rows + encoder -> the sequences of a run: encoded once and held, or encoded when their batch comes.

Rows that keep no supervised token are never lost silently: held sequences leave them out and count them, streamed
ones contribute nothing to their batch and are counted when they are met.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ranktuner.data.encode import Encoder, Example
from ranktuner.data.rows import Rows
from ranktuner.errors import DataError

SAMPLE = 512
"""Rows that are encoded to estimate the counts of streamed data."""


@dataclass
class Counts:
    """What the data come to."""

    examples: int = 0
    tokens: int = 0
    supervised: int = 0
    truncated: int = 0
    dropped: int = 0
    """Rows without a supervised token, most often since truncation took the whole answer."""
    skipped: int = 0
    """Rows passed over as empty."""
    longest: int = 0
    estimated: bool = False
    """Counted on a sample and scaled up (streamed data)."""
    dropped_ids: list[str] = field(default_factory=list)
    """The first few of the dropped rows."""

    def add(self, example: Example) -> None:
        """Count one example."""
        self.truncated += example.truncated
        if not example.supervised:
            self.dropped += 1
            if len(self.dropped_ids) < 5:
                self.dropped_ids.append(example.row_id)
            return
        self.examples += 1
        self.tokens += len(example)
        self.supervised += example.supervised
        self.longest = max(self.longest, len(example))


class Held:
    """Sequences encoded at once; those without a supervised token are left out."""

    def __init__(self, rows: Rows, encoder: Encoder) -> None:
        self.counts = Counts(skipped=rows.skipped)
        self._examples: list[Example] = []
        for example in encoder.encode(rows):
            self.counts.add(example)
            if example.supervised:
                self._examples.append(example)
        if not self._examples:
            raise DataError(_nothing_left(rows, self.counts, encoder))

    def __len__(self) -> int:
        return len(self._examples)

    def get(self, places: Iterable[int]) -> list[Example]:
        """Return the examples at these places."""
        return [self._examples[place] for place in places]

    def lengths(self) -> list[int]:
        """Return the tokens of every sequence."""
        return [len(example) for example in self._examples]


class Streamed:
    """Sequences encoded when they are asked for; every row has its place, also one that turns out to be empty."""

    def __init__(self, rows: Rows, encoder: Encoder) -> None:
        self._rows, self._encoder = rows, encoder
        sample = range(0, len(rows), max(1, len(rows) // SAMPLE))
        self.counts = Counts(skipped=rows.skipped, estimated=True)
        self._sampled: list[int] = []
        for example in encoder.encode(rows[i] for i in sample):
            self.counts.add(example)
            self._sampled.append(len(example))
        if not self.counts.examples:
            raise DataError(_nothing_left(rows, self.counts, encoder))
        scale = len(rows) / len(sample)
        for name in ("examples", "tokens", "supervised", "truncated", "dropped"):
            setattr(self.counts, name, round(getattr(self.counts, name) * scale))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, places: Iterable[int]) -> list[Example]:
        """Read, encode and return the examples at these places."""
        return list(self._encoder.encode(self._rows[place] for place in places))

    def lengths(self) -> list[int]:
        """Return the tokens of the sampled sequences."""
        return self._sampled


Examples = Held | Streamed


def open_examples(rows: Rows, encoder: Encoder, streaming: str = "auto") -> Examples:
    """Return the sequences of `rows`; `streaming` is on, off or auto (by the size of the files)."""
    stream = rows.on_disk if streaming == "auto" else streaming == "on"
    return Streamed(rows, encoder) if stream else Held(rows, encoder)


def pack(lengths: Sequence[int], max_length: int) -> list[list[int]]:
    """Fill bins of `max_length` tokens with whole sequences, the longest first, each into the fullest bin that fits.

    Returns:
        The places in `lengths` that share a bin.
    """
    bins: list[list[int]] = []
    # room -> bins with that much room left: the search is over lengths, not over bins.
    open_bins: dict[int, list[int]] = {}
    for place in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        need = min(lengths[place], max_length)
        room = next((r for r in range(need, max_length + 1) if open_bins.get(r)), None)
        if room is None:
            bins.append([])
            chosen, room = len(bins) - 1, max_length
        else:
            chosen = open_bins[room].pop()
        bins[chosen].append(place)
        open_bins.setdefault(room - need, []).append(chosen)
    return bins


def _nothing_left(rows: Rows, counts: Counts, encoder: Encoder) -> str:
    return (
        f"{rows.name}: none of the {counts.dropped} rows read keeps a supervised token ({counts.truncated} were cut at "
        f"max_length={encoder.max_length}, first {', '.join(counts.dropped_ids)}); raise --max-length"
    )
