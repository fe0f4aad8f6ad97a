"""Sequences -> the micro-batches of one process, optimiser step by optimiser step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ranktuner.data.batches import Shuffle, deal, flatten, pad
from ranktuner.data.encode import Example
from ranktuner.data.examples import Examples

ROWS = "row_ids"
"""Key of a micro-batch with the ids of its rows, in order; the trainer takes it out before the model sees it."""


@dataclass(frozen=True)
class Layout:
    """How examples become tensors."""

    padded: bool = False
    """Rows of equal length instead of one flattened row: for models that cannot keep flattened sequences apart."""
    pad_id: int = 0
    side: str = "right"

    def tensors(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Return one micro-batch as tensors, with the row ids under `ROWS`."""
        arrays = pad(examples, self.pad_id, self.side) if self.padded else flatten(examples)
        return {
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
            ROWS: [example.row_id for example in examples],
        }


class MicroBatches:
    """What the training loop iterates over: `accumulate` micro-batches a step, for one process.

    Args:
        examples: all sequences.
        units: places in `examples` that are shuffled as one (packed bins); None: each by itself.
        size: units of one optimiser step.
        micro: units of one micro-batch.
        steps: optimiser steps of the whole run.
        seed: of the shuffle.
        processes: how many share the step.
        rank: which of them this is.
        layout: flattened or padded.
        start: tells, when iteration begins, how many steps are done already.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        units: list[list[int]] | None,
        size: int,
        micro: int,
        steps: int,
        seed: int,
        processes: int,
        rank: int,
        layout: Layout,
        start: Callable[[], int],
    ) -> None:
        self._examples, self._units, self._layout, self._start = examples, units, layout, start
        self._shuffle = Shuffle(len(examples) if units is None else len(units), size, seed)
        self._processes, self._rank, self._steps = processes, rank, steps
        self.accumulate = size // processes // micro
        self.batch_size = micro

    def __len__(self) -> int:
        return self._steps * self.accumulate

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for step in range(self._start(), self._steps):
            yield from self.step(step)

    def step(self, step: int) -> list[dict[str, Any]]:
        """Return this process's micro-batches of one optimiser step (from 0)."""
        members = self._shuffle.members(step)
        units = [[place] for place in members] if self._units is None else [self._units[place] for place in members]
        # Every process reads the whole batch: all must agree on the lengths by which it is dealt.
        found = iter(self._examples.get(place for unit in units for place in unit))
        examples = [[next(found) for _ in unit] for unit in units]
        lengths = [sum(map(len, unit)) for unit in examples]
        mine = deal(lengths, self._processes, self.accumulate)[self._rank]
        return [self._layout.tensors([e for place in part for e in examples[place]]) for part in mine]


def held_out(examples: Examples, micro: int, layout: Layout, processes: int, rank: int) -> Iterator[dict[str, Any]]:
    """Yield one process's micro-batches of the evaluation data, like with like; every sequence once."""
    lengths = examples.lengths()
    order = sorted(range(len(examples)), key=lambda i: (-lengths[i], i))[rank::processes]
    for at in range(0, len(order), micro):
        yield layout.tensors(examples.get(order[at : at + micro]))
