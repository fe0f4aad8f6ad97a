"""SIGINT and SIGTERM as a request: finish the step, save, stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Whether a signal came."""

    requested = False


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into a request to save and stop; a second one ends at once."""
    stop = Stop()

    def ask(number: int, _: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: a notebook's or a server's signals are not ours
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
