"""State over optimiser steps for the method that needs it: the median of the sequences' mean nll, one step behind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ranktuner.errors import InputError, UnsupportedError

FLOOR = 1e-4
"""Keeps tau above 0 on data that the model knows by heart: 1/tau stays finite."""


class Lagged:
    """Collects sequence means during a step, and serves the median of the step before.

    The trainer calls `collect` for each micro-batch and `advance` once at the end of the optimiser step; with several
    processes it hands `advance` the means of all of them. `prime` sets the first value, from one pass without gradient.
    """

    def __init__(self) -> None:
        self._tau: float | None = None
        self._pending: list[Tensor] = []

    def value(self) -> float:
        """Return tau of the step before."""
        if self._tau is None:
            raise UnsupportedError(
                "talr(tau=lagged) has no value before the first step: call prime(batches) of the attachment, or "
                "context.prime(nll, seq) of the method (the trainer does), or give talr(tau=micro-batch) or a number"
            )
        return self._tau

    @property
    def ready(self) -> bool:
        """Whether there is a value."""
        return self._tau is not None

    def collect(self, nll: Tensor, seq: Tensor) -> None:
        """Add one micro-batch of the current step; its sequences are whole."""
        self._pending.append(self.sequence_means(nll.detach(), seq))

    def pending(self) -> Tensor:
        """Return the means collected since the last `advance`, to be gathered over processes."""
        return torch.cat([m.double().cpu() for m in self._pending]) if self._pending else torch.zeros(0).double()

    def advance(self, means: Tensor | None = None) -> None:
        """End the step: tau becomes the median of `means` (default: what was collected here)."""
        means = self.pending() if means is None else means
        self._pending.clear()
        if len(means):
            self._tau = float(self.median(means))

    def prime(self, nll: Tensor, seq: Tensor) -> None:
        """Set the first value from a batch, without counting it as a step."""
        self._tau = float(self.median(self.sequence_means(nll.detach(), seq)))

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return {"tau": self._tau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        if "tau" not in state:
            raise InputError(f"state of talr has the keys {sorted(state)}; 'tau' was expected: is it another method's?")
        self._tau = state["tau"]
        self._pending.clear()

    @staticmethod
    def sequence_means(nll: Tensor, seq: Tensor) -> Tensor:
        """Return the mean nll of each sequence that has a token."""
        names, inverse = torch.unique(seq, return_inverse=True)
        zeros = torch.zeros(len(names), dtype=nll.dtype, device=nll.device)
        return zeros.scatter_add(0, inverse, nll) / zeros.scatter_add(0, inverse, torch.ones_like(nll))

    @staticmethod
    def median(means: Tensor) -> Tensor:
        """Return the median (mean of the two middle values for even counts), at least `FLOOR`."""
        ordered = means.sort().values
        n = len(ordered)
        return ((ordered[(n - 1) // 2] + ordered[n // 2]) / 2).clamp_min(FLOOR)
