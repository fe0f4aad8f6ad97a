"""Examples -> optimiser batches -> micro-batches without padding.

Which sequences make up optimiser batch k is a seeded shuffle and nothing else: not the micro-batch, not the number of
processes, not where a run was resumed. Inside the batch they are sorted by length and dealt out, which changes no sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ranktuner.data.encode import Example
from ranktuner.errors import InputError

Arrays = Mapping[str, NDArray[np.generic]]


class Shuffle:
    """An endless stream of shuffles of `n` sequences, cut into batches of `size`.

    A batch may hold the end of one shuffle and the beginning of the next, so that every batch has the same size.
    """

    def __init__(self, n: int, size: int, seed: int) -> None:
        if n < 1 or size < 1:
            raise InputError(f"{n} sequences in batches of {size}: both must be at least 1")
        self.n, self.size, self.seed = n, size, seed
        # Two shuffles are all a batch can touch, unless it is larger than the data.
        self._permutation = lru_cache(maxsize=2 + size // n)(self._draw)

    def _draw(self, epoch: int) -> NDArray[np.int64]:
        return np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(self.n)

    def members(self, step: int) -> list[int]:
        """Return the sequences of optimiser batch `step` (from 0), in the order of the shuffle."""
        places = range(step * self.size, (step + 1) * self.size)
        return [int(self._permutation(place // self.n)[place % self.n]) for place in places]


def deal(lengths: Sequence[int], processes: int, parts: int) -> list[list[list[int]]]:
    """Deal the sequences of one optimiser batch out to processes and their micro-batches.

    Sorted from long to short, cut into `parts` runs of like length (the longest first: a step that does not fit in
    memory fails at once), and each run dealt to the processes in turn, so that all of them do about the same work.

    Args:
        lengths: tokens of each sequence.
        processes: how many share the batch.
        parts: micro-batches each of them takes; every one gets the same number of sequences.

    Returns:
        `[process][part] -> places in lengths`.
    """
    each, rest = divmod(len(lengths), processes * parts)
    if rest or not each:
        raise InputError(
            f"{len(lengths)} sequences do not divide into {processes} x {parts} micro-batches of equal size; "
            "choose a global batch that is a multiple of micro-batch x processes"
        )
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    runs = [order[i : i + each * processes] for i in range(0, len(order), each * processes)]
    return [[run[process::processes] for run in runs] for process in range(processes)]


def flatten(examples: Sequence[Example]) -> Arrays:
    """Lay examples end to end in one row without padding.

    Returns:
        `input_ids`, `labels`, `position_ids` of shape [1, T]; positions start again at 0 with each sequence, which is
        what keeps attention apart. `token_weights` [1, T] only where an example brings some.
    """
    # The first token of a sequence is never learnt (Example.learnt), so no label reaches over a join.
    arrays = {
        "input_ids": np.concatenate([e.input_ids for e in examples]).astype(np.int64),
        "labels": np.concatenate([e.labels for e in examples]),
        "position_ids": np.concatenate([np.arange(len(e), dtype=np.int64) for e in examples]),
    }
    if any(e.weights is not None for e in examples):
        arrays["token_weights"] = np.concatenate([_weights(e) for e in examples])
    return {name: array[None] for name, array in arrays.items()}


def pad(examples: Sequence[Example], pad_id: int, side: str = "right", multiple: int = 1) -> Arrays:
    """Stack examples into rows of equal length, for models whose layers cannot keep flattened sequences apart.

    Returns:
        `input_ids`, `labels`, `attention_mask`, `position_ids` of shape [B, T], and `token_weights` where there are
        any. Positions count real tokens, so padding on the left changes nothing.
    """
    width = -(-max(map(len, examples)) // multiple) * multiple
    arrays: dict[str, NDArray[np.generic]] = {
        "input_ids": np.full((len(examples), width), pad_id, np.int64),
        "labels": np.full((len(examples), width), -100, np.int64),
        "attention_mask": np.zeros((len(examples), width), np.int64),
        "position_ids": np.zeros((len(examples), width), np.int64),
    }
    if any(e.weights is not None for e in examples):
        arrays["token_weights"] = np.ones((len(examples), width), np.float32)
    for row, example in enumerate(examples):
        at = slice(width - len(example), width) if side == "left" else slice(0, len(example))
        arrays["input_ids"][row, at] = example.input_ids
        arrays["labels"][row, at] = example.labels
        arrays["attention_mask"][row, at] = 1
        arrays["position_ids"][row, at] = np.arange(len(example))
        if "token_weights" in arrays:
            arrays["token_weights"][row, at] = _weights(example)
    return arrays


def _weights(example: Example) -> NDArray[np.float32]:
    return np.ones(len(example), np.float32) if example.weights is None else example.weights
