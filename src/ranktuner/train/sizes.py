"""How large a batch, how it is cut, how many steps: small pure functions, each with the reason it would give."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ranktuner.errors import InputError


def batch_size(n: int, epochs: float, wanted: int, explicit: bool, min_steps: int, processes: int) -> tuple[int, str]:
    """Return the sequences of one optimiser step and, where it is not what was wanted, why.

    Small data would give a handful of steps of the default size. So unless the size was asked for, it shrinks to the
    largest power of two (times the processes) that leaves `min_steps` steps.
    """
    if explicit or n * epochs >= min_steps * wanted:
        size, note = wanted, ""
    else:
        room = max(1, int(n * epochs / min_steps) // processes)
        size = min(wanted, processes * 2 ** int(math.log2(room)))
        few = math.ceil(n * epochs / wanted)
        note = f"{size}, shrunk from {wanted}: {n:,} sequences would give {few} steps, fewer than {min_steps}"
    if size % processes:
        below = size // processes * processes
        near = " or ".join(str(s) for s in (below, below + processes) if s)
        raise InputError(
            f"a global batch of {size} does not divide among {processes} processes; choose {near} (--global-batch)"
        )
    return size, note


def step_count(n: int, epochs: float, size: int, max_steps: int | None) -> int:
    """Return how many optimiser steps see every sequence `epochs` times, the last batch filled up; or `max_steps`."""
    # Rounded before the ceiling: 3 epochs of 0.1 must not become one step more by a rounding error.
    steps = max(1, math.ceil(round(n * epochs / size, 9)))
    return max_steps if max_steps is not None else steps


def micro_size(size: int, processes: int, wanted: int | None, lengths: Sequence[int], tokens: int) -> int:
    """Return the sequences of one forward pass of one process.

    Args:
        size: sequences of the optimiser step, over all processes.
        processes: how many share it.
        wanted: what was asked for, or None to derive it.
        lengths: tokens of the sequences (or of a sample).
        tokens: how many tokens one forward pass may hold.

    Returns:
        `wanted` if it divides the process's share, else the largest divisor whose longest likely run fits in `tokens`.
    """
    share = size // processes
    if wanted is not None:
        if share % wanted:
            near = [d for d in range(1, share + 1) if share % d == 0]
            closest = sorted(near, key=lambda d: abs(d - wanted))[:3]
            raise InputError(
                f"micro-batch {wanted} does not divide the {share} sequences of one process "
                f"(global batch {size}, {processes} processes); choose {', '.join(map(str, sorted(closest)))}"
            )
        return wanted
    # Sorted by length, the first micro-batch of a step holds its longest sequences: the mean would be too hopeful.
    ordered = sorted(lengths)
    long = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    fits = [d for d in range(1, share + 1) if share % d == 0 and d * long <= max(tokens, long)]
    return fits[-1]


def save_interval(steps: int, wanted: int | None) -> int:
    """Return the steps between checkpoints: a tenth of the run, at least 10."""
    return wanted if wanted is not None else max(10, math.ceil(steps / 10))
