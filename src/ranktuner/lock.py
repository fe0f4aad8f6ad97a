"""One process at a time: the right to write a file or a folder, held through a hidden file.

A record lock, which belongs to a process and ends with it: a killed one leaves nothing to clean up. A `flock` would be
inherited by forked workers, and an orphan of a killed run would go on holding it. The hidden file is never deleted:
deleting it would let two processes hold locks on two files of the same name.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: there one writer at a time is up to the user
    fcntl = None  # type: ignore[assignment]

THIS = "this process"
HELD = (errno.EACCES, errno.EAGAIN)
"""What the system says where another process has it; anything else means that this file system knows no locks."""

_held_here: set[Path] = set()


class HeldError(Exception):
    """Somebody has it; the message says who: `process 4711`, or THIS."""


class Lock:
    """Held from here until `release`, or until the process ends."""

    def __init__(self, file: Path) -> None:
        """Take it.

        Args:
            file: the hidden file; its folder exists.

        Raises:
            HeldError: somebody has it.
        """
        self.key = file.resolve()
        if self.key in _held_here:  # the system gives a process its own lock again
            raise HeldError(THIS)
        self.handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                owner = os.read(self.handle, 32).decode(errors="replace").strip()
                os.close(self.handle)
                raise HeldError(f"process {owner or 'unknown'}") from error
        os.truncate(self.handle, 0)
        os.write(self.handle, f"{os.getpid()}\n".encode())
        _held_here.add(self.key)

    def release(self) -> None:
        """Let others have it; once is enough."""
        if self.key in _held_here:
            _held_here.discard(self.key)
            os.close(self.handle)
