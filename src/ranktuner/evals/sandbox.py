"""Untrusted Python in a process that is confined, timed and watched; this side only exchanges frames of JSON with it.

The sandbox is bubblewrap (`bwrap`), tried once at the start. Where it is absent or its namespaces are forbidden, as
in many containers, `choose` refuses; with `allow_unsafe` it falls back to a limited process.

**Bubblewrap protects from**: reading or writing files (visible are the system's libraries, the interpreter with its
standard library, the packages named, and an empty /tmp of 64 MB in memory; installed packages and data sets are not);
network of every kind; seeing, signalling or tracing other processes; privileges (no capabilities, no new ones; as
root, another user besides); processes that outlive the run (they go with their process namespace); fork bombs (16
processes and threads); memory (4 GB a process, and 4 GB together, looked at every 50 ms); endless loops (wall clock
and processor time); floods of output (stdout and stderr go nowhere, a reply has a length limit); system calls on the
list in `seccomp.py`, on x86_64 and aarch64.

**It does not protect from**: an error in the kernel or in bubblewrap; memory for up to 50 ms beyond the limit; use of
two cores and of memory bandwidth while it runs; timing side channels; reading what the machine tells everybody
(/proc: processor, memory, kernel version). It is not a virtual machine: for code that means harm rather than code
that is merely wrong, run the whole evaluation in one.

**The limited process protects from**: endless loops, memory, open files and file sizes (rlimits), floods of output,
and leaves no process in its own session alive. **It does not protect from**: anything done as the user who runs it:
reading, changing and deleting that user's files, network, signals to other processes, processes that leave the
session, memory in shared mappings, reading the expected values out of the grader's memory, and, where that user is
root, fork bombs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ranktuner.errors import UnsupportedError
from ranktuner.evals.sandbox_command import bubblewrap_command, limited_command, make_runner, processes_of, usage

Ending = Literal["timeout", "memory", "output", "died", "broken", "stopped"]
TICK_S = 0.05
START_UP_S = 60.0
"""For the process to say that it is ready; a machine under load may take seconds, and no candidate runs yet."""


@dataclass(frozen=True)
class Limits:
    """What one sandboxed process may use."""

    memory_bytes: int = 4 << 30
    """Address space of a process, and resident memory of all together."""
    file_bytes: int = 16 << 20
    """Size of one file."""
    scratch_bytes: int = 64 << 20
    """Size of /tmp."""
    processes: int = 16
    """Processes and threads."""
    open_files: int = 64
    cpu_s: int = 300
    """Processor time of a process; the wall clock of the conversation is usually shorter."""

    def rlimits(self) -> dict[str, int]:
        """Return them as resource limits, by name."""
        return {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_CORE": 0,
        }


class Ended(Exception):  # noqa: N818 - not always an error
    """The conversation is over before its end: why, in a word and in a line."""

    def __init__(self, kind: Ending, line: str) -> None:
        super().__init__(line)
        self.kind = kind


@dataclass(frozen=True)
class Sandbox:
    """A way to run untrusted code on this machine."""

    kind: Literal["bubblewrap", "limited process"]
    bwrap: str = ""
    """Path of the program."""

    def describe(self) -> str:
        """Return a line for people: what it is, and what it is not."""
        if self.kind == "bubblewrap":
            return f"bubblewrap ({self.bwrap}): no network, no files, no other processes; see ranktuner.evals.sandbox"
        return "a limited process, NOT a sandbox: it can read and delete this user's files and use the network"

    @contextlib.contextmanager
    def converse(
        self, job: dict[str, Any], limits: Limits, stop: threading.Event | None = None
    ) -> Iterator[Conversation]:
        """Start a process, hand it `job` (see `inside/child.py`), and end it with everything it started."""
        runner, packages = make_runner()
        with contextlib.ExitStack() as stack:
            folder = None
            if self.kind == "bubblewrap":
                argv, descriptors = bubblewrap_command(self.bwrap, runner, packages, limits.scratch_bytes)
                stack.callback(lambda: [*map(os.close, descriptors)])
                seen = ["/packages"]
            else:
                folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
                argv, descriptors, seen = limited_command(), [], sorted({str(p.parent) for p in packages})
            conversation = stack.enter_context(Conversation(argv, descriptors, folder, runner, limits, stop))
            setup = {"limits": limits.rlimits(), "uids": _uids() if self.kind == "bubblewrap" else [], "packages": seen}
            deadline = time.monotonic() + START_UP_S
            try:
                conversation.send(json.dumps(setup).encode(), deadline)
                conversation.receive(deadline)
                conversation.send(json.dumps(job).encode(), deadline)
            except Ended as ended:
                said = conversation.last_words()
                raise UnsupportedError(f"the {self.kind} did not start: {ended}: {said or 'it said nothing'}") from None
            yield conversation


class Conversation:
    """One sandboxed process and the two pipes to it. Everything that comes from it is hostile until proved plain."""

    def __init__(
        self,
        argv: list[str],
        descriptors: list[int],
        folder: str | None,
        runner: Path,
        limits: Limits,
        stop: threading.Event | None,
    ) -> None:
        inside = folder is None
        home = folder or "/tmp"
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder or "/",
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": home,
                "TMPDIR": home,
                "LC_ALL": "C.UTF-8",
                "PYTHONHASHSEED": "0",  # the same sample, the same verdict
                "PYTHONPATH": "/runner" if inside else str(runner),
                **threads,
            },
            pass_fds=descriptors,
            start_new_session=True,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.input, self.output, self.errors = self.process.stdin, self.process.stdout, self.process.stderr
        for pipe in (self.input, self.output, self.errors):
            os.set_blocking(pipe.fileno(), False)
        self.nonce = secrets.token_bytes(16)
        self.limits, self.stop = limits, stop
        self.cpu_s = 0.0
        """Processor time used by the whole tree, as last looked at."""
        self._buffer = bytearray()
        self._looked = 0.0

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process and whatever it started."""
        if self.process.returncode is None:  # not reaped: its number, and that of its group, are still its own
            tree = processes_of(self.process.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            for pid in tree:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        for pipe in (self.input, self.output, self.errors):
            pipe.close()

    def send(self, payload: bytes, deadline: float) -> None:
        """Write one frame before `deadline` (time.monotonic)."""
        frame = memoryview(len(payload).to_bytes(4, "big") + self.nonce + payload)
        while frame:
            self._wait(self.input.fileno(), select.POLLOUT, deadline)
            try:
                frame = frame[os.write(self.input.fileno(), frame) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._died() from None

    def receive(self, deadline: float, at_most: int = 1 << 20) -> bytes:
        """Return the payload of the next frame, of at most `at_most` bytes, before `deadline`."""
        head = self._take(20, deadline)
        length = int.from_bytes(head[:4], "big")
        if head[4:] != self.nonce:
            raise Ended("broken", "the process wrote into the grader's pipe")
        if length > at_most:
            raise Ended("output", f"a reply of {length} bytes, more than {at_most}")
        return self._take(length, deadline)

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            self._wait(self.output.fileno(), select.POLLIN, deadline)
            with contextlib.suppress(BlockingIOError):
                part = os.read(self.output.fileno(), 1 << 16)
                if not part:
                    raise self._died()
                self._buffer += part
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            now = time.monotonic()
            if now - self._looked > TICK_S:
                self._look(now)
            if now > deadline:
                self._look(now)
                raise Ended("timeout", "no answer within the time limit")
            if poll.poll(1000 * max(0.0, min(TICK_S, deadline - now)) + 1):
                return

    def _look(self, now: float) -> None:
        self._looked = now
        if self.stop is not None and self.stop.is_set():
            raise Ended("stopped", "the grading was stopped")
        memory, self.cpu_s = usage(self.process.pid)
        if memory > self.limits.memory_bytes:
            raise Ended("memory", f"used more than {self.limits.memory_bytes / 2**30:.1f} GiB of memory")

    def _died(self) -> Ended:
        """Look at how it ended without reaping it: `kill` still needs its number."""
        patience = time.monotonic() + 5
        while (found := os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
            if time.monotonic() > patience:
                return Ended("broken", "the process closed the grader's pipe")
            time.sleep(0.002)
        how = "exit status" if found.si_code == os.CLD_EXITED else "signal"
        return Ended("died", f"the process ended before it answered ({how} {found.si_status})")

    def last_words(self) -> str:
        """Return what stood on the process's stderr before it confined itself."""
        with contextlib.suppress(BlockingIOError, OSError):
            return os.read(self.errors.fileno(), 2000).decode(errors="replace").strip()
        return ""


def _uids() -> list[int]:
    """Return users to become, where we are root: one that nobody else has, so that it can signal and count nobody."""
    return [2_000_000_000 + random.SystemRandom().randrange(100_000_000), 65534] if os.getuid() == 0 else []


@functools.cache
def bubblewrap_or_reason() -> Sandbox | str:
    """Return the sandbox if bubblewrap works here, else a line that says why not. Tried once, by running it."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    sandbox = Sandbox("bubblewrap", program)
    try:
        with sandbox.converse(
            {"role": "serve", "text": "def f(): return 1", "prompt": "", "entry_point": "f", "exact": False}, Limits()
        ):
            return sandbox
    except UnsupportedError as error:
        return f"bubblewrap does not work here ({error})"


def choose(allow_unsafe: bool = False) -> Sandbox:
    """Return bubblewrap where it works; else, only if asked for, the limited process."""
    if sys.platform != "linux":
        raise UnsupportedError(
            f"code is graded on Linux only (this is {sys.platform}): use a container or another machine"
        )
    found = bubblewrap_or_reason()
    if isinstance(found, Sandbox):
        return found
    if allow_unsafe:
        return Sandbox("limited process")
    raise UnsupportedError(
        f"no sandbox to run generated code in: {found}. Install it (apt-get install bubblewrap), and in a container "
        "allow user namespaces; or, where nothing of value is at hand, pass --allow-unsafe: the code then runs in a "
        "limited process, with your files and your network"
    )
