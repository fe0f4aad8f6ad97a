"""From a step's raw sums to a line of the log: exact over micro-batches, processes and the steps between two lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ranktuner.loss import add_metrics, summarize


def over_processes(sums: Mapping[str, Tensor], processes: int) -> dict[str, Tensor]:
    """Return the raw sums of one step over all processes, in float64 on the CPU."""
    names = sorted(sums)
    mine = torch.stack([sums[name].double() for name in names])
    if processes > 1:
        rows = [torch.empty_like(mine) for _ in range(processes)]
        torch.distributed.all_gather(rows, mine)
    else:
        rows = [mine]
    return add_metrics(dict(zip(names, row.cpu(), strict=True)) for row in rows)


def joined(values: Tensor, processes: int) -> Tensor:
    """Return the values of all processes one after another; they may differ in number."""
    if processes == 1:
        return values
    parts: list[Any] = [None] * processes
    torch.distributed.all_gather_object(parts, values.cpu())
    return torch.cat(parts)


def any_process(flag: bool, processes: int, device: torch.device) -> bool:
    """Whether the flag is set on one of the processes."""
    if processes == 1:
        return flag
    value = torch.tensor(float(flag), device=device)
    torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX)
    return bool(value > 0)


class StepLog:
    """Collects steps into the record of the next line."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._steps = 0
        self._clipped = 0
        self._last: dict[str, float] = {}
        self._since, self._timed_tokens = time.perf_counter(), 0.0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Keep the time of what is not training (a save, an evaluation) out of tokens/s."""
        start = time.perf_counter()
        yield
        self._since += time.perf_counter() - start

    def add(self, sums: Mapping[str, Tensor], learning_rate: float, grad_norm: float, max_grad_norm: float) -> None:
        """Add one optimiser step."""
        self._sums = add_metrics([self._sums, sums]) if self._sums else dict(sums)
        self._timed_tokens += float(sums["tokens_sum"])
        self._steps += 1
        self._clipped += bool(max_grad_norm and grad_norm > max_grad_norm)
        self._last = {"learning_rate": learning_rate, "grad_norm": grad_norm}

    def record(self, step: int) -> dict[str, Any]:
        """Return the line for the steps since the last one, and begin a new one.

        `clipped` is the share of these steps whose gradient was clipped; rate and gradient norm are the last's.
        """
        numbers = summarize(self._sums)
        seconds = max(time.perf_counter() - self._since, 1e-9)
        record = {
            "step": step,
            **numbers,
            "tokens": int(numbers["tokens"]),
            "tokens_per_s": round(self._timed_tokens / seconds, 1),
            **self._last,
            "clipped": self._clipped / self._steps,
        }
        self._sums, self._steps, self._clipped = {}, 0, 0
        self._since, self._timed_tokens = time.perf_counter(), 0.0
        return record

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint between two lines must hold."""
        sums = {name: float(value) for name, value in self._sums.items()}
        return {"sums": sums, "steps": self._steps, "clipped": self._clipped}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._sums = {name: torch.tensor(value, dtype=torch.float64) for name, value in state["sums"].items()}
        self._steps, self._clipped = state["steps"], state["clipped"]
