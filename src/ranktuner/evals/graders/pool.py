"""A pool of worker processes that grade and can be killed: no answer holds it longer than its limit.

Why processes of our own and not threads or multiprocessing: sympy can sit in one C call for hours, which neither a
signal nor a thread's end can stop, and it can ask for all memory; multiprocessing's clean start methods import the
user's main module (with its torch) into every worker, its quick one forks a process that may hold a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ranktuner
from ranktuner.errors import InputError, RankTunerError
from ranktuner.evals.records import Grade, Problem, Sample

START_SECONDS = 120.0
"""How long a worker may take to start (it imports sympy); time that no answer pays for."""
MEMORY = 2 * 1024**3
"""Bytes of address space for a worker."""
AHEAD = 64
"""How many items a worker may be ahead of the one that is handed out next: bounds what waits in memory."""

Item = tuple[Problem, Sample]
_kept: list[_Worker] | None = None
"""Idle workers that wait for the next call; None: nobody asked to keep them."""


@contextlib.contextmanager
def keep_workers() -> Iterator[None]:
    """Keep the workers of finished calls of `grade` for later ones: each takes half a second to start.

    They end with the block, or with this process.
    """
    global _kept
    if _kept is not None:
        yield  # inside another such block
        return
    _kept = []
    try:
        yield
    finally:
        for worker in _kept:
            worker.kill()
        _kept = None


def grade(items: Iterable[Item], *, rule: str, workers: int = 2, seconds: float = 10.0) -> Iterator[Grade]:
    """Grade items in worker processes; yield the grades in the order of the items.

    An answer that is not graded after `seconds` gets the verdict `timeout` and its worker is killed and replaced; a
    worker that dies (memory) gives the verdict `error`. Both are counted by name, neither stops the run.

    Args:
        items: (problem, sample) pairs; read as they are needed.
        rule: `module:function`, called in the worker with problem and sample, returns a Grade; imports no torch.
        workers: processes; each needs about 100 MB.
        seconds: wall-clock limit for one answer.

    Yields:
        one Grade an item.
    """
    if workers < 1 or seconds <= 0:
        raise InputError(f"workers={workers}, seconds={seconds}: expected at least one worker and a time above 0")
    return _grade(iter(items), rule, workers, seconds)


def _grade(items: Iterator[Item], rule: str, workers: int, seconds: float) -> Iterator[Grade]:
    done: dict[int, Grade] = {}
    next_in = next_out = 0
    exhausted = False
    pool: list[_Worker] = []
    try:
        while True:
            while not exhausted and next_in < next_out + workers * AHEAD:
                worker = next((w for w in pool if w.idle), None)
                if worker is None and len(pool) == workers:
                    break
                item = next(items, None)
                if item is None:
                    exhausted = True
                    break
                if item[1].finish == "error":
                    done[next_in] = Grade("error", None, item[1].note or "the generator failed on this sample")
                else:
                    if worker is None:
                        worker = _take(rule, seconds) or _Worker(rule, seconds)
                        pool.append(worker)
                    worker.give(next_in, *item)
                next_in += 1
            while next_out in done:
                yield done.pop(next_out)
                next_out += 1
            if exhausted and next_out == next_in:
                return
            if any(not worker.idle for worker in pool):
                done.update(_collect(pool))
            else:  # the window was full and has just been handed out whole
                assert next_in == next_out, "a grade was lost"
    finally:
        for worker in pool:
            if _kept is not None and worker.idle and worker.ready:
                _kept.append(worker)
            else:
                worker.kill()


def _take(rule: str, seconds: float) -> _Worker | None:
    """Return a kept worker that does the same, if there is one alive."""
    for worker in list(_kept or ()):
        if (worker.rule, worker.seconds) == (rule, seconds) and _kept is not None:
            _kept.remove(worker)
            if worker.process is not None and worker.process.poll() is None:
                return worker
            worker.kill()
    return None


def _collect(pool: list[_Worker]) -> dict[int, Grade]:
    """Wait until a busy worker answers, dies or runs out of time; return the grades that are there now."""
    busy = [worker for worker in pool if not worker.idle]
    grades: dict[int, Grade] = {}
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
        wait = min((worker.left() for worker in busy), default=0.0)
        for key, _ in selector.select(max(0.0, wait)):
            worker = key.data
            place = worker.place
            grade = worker.read()
            if grade is not None and place is not None:
                grades[place] = grade
    for worker in busy:
        place = worker.place
        if place is not None and worker.left() <= 0:
            grades[place] = worker.late()
    return grades


@dataclass
class _Worker:
    """One process; starts itself again when it was killed or died."""

    rule: str
    seconds: float
    process: subprocess.Popen[bytes] | None = None
    place: int | None = None
    deadline: float = 0.0
    ready: bool = False
    line: bytes = b""
    waiting: bytes = field(default=b"", repr=False)

    @property
    def idle(self) -> bool:
        """Return whether it has nothing to do."""
        return self.place is None

    @property
    def stdout(self) -> int:
        """Return the file descriptor on which it answers."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def left(self) -> float:
        """Return the seconds until its time is up."""
        return self.deadline - time.monotonic()

    def give(self, place: int, problem: Problem, sample: Sample) -> None:
        """Hand it an item; a worker that is still starting gets it when it is ready."""
        self.place = place
        self.waiting = _encode(problem, sample)
        if self.process is None:
            self.start()
        elif self.ready:
            self.send()

    def start(self) -> None:
        """Start the process; it says so when it is ready to grade."""
        source = str(Path(ranktuner.__file__).parents[1])
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ranktuner.evals.graders.worker", self.rule, str(MEMORY), str(self.seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is ours to handle; the whole group can be killed
        )
        self.ready, self.line = False, b""
        self.deadline = time.monotonic() + START_SECONDS

    def send(self) -> None:
        """Write the waiting item; its time starts now."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.deadline = time.monotonic() + self.seconds
        with contextlib.suppress(BrokenPipeError):  # it died; `read` finds the end of its output
            self.process.stdin.write(self.waiting)
            self.process.stdin.flush()

    def read(self) -> Grade | None:
        """Read what it wrote; return the grade when the line is whole or the process has ended."""
        data = os.read(self.stdout, 1 << 16)
        if not data:
            return self.died()
        self.line += data
        if not self.line.endswith(b"\n"):
            return None
        message, self.line = json.loads(self.line), b""
        if not self.ready:
            if "failed" in message:
                raise RankTunerError(f"a grading worker did not start: {message['failed']}")
            self.ready = True
            self.send()
            return None
        self.place = None
        return Grade(**message)

    def late(self) -> Grade:
        """Kill it because its time is up, and return the verdict."""
        if not self.ready:
            self.kill()
            raise RankTunerError(
                f"a grading worker did not start within {START_SECONDS:.0f} s; is the machine overloaded?"
            )
        self.kill()
        self.place = None
        return self._timeout()

    def _timeout(self) -> Grade:
        return Grade("timeout", None, f"the grader was stopped after {self.seconds:g} s")

    def died(self) -> Grade:
        """Return the verdict on the answer that its process did not survive."""
        assert self.process is not None
        ready, code = self.ready, self.process.wait()
        self.kill()
        if not ready:
            raise RankTunerError(
                f"a grading worker ended with code {code} before it could start; see its message above"
            )
        self.place = None
        if code == -signal.SIGALRM:  # nobody looked while it ran over: the items themselves were waited for
            return self._timeout()
        return Grade("error", None, f"the grader's process ended with code {code} (out of memory?)")

    def kill(self) -> None:
        """End the process and all it may have started."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process = None


def _encode(problem: Problem, sample: Sample) -> bytes:
    message: dict[str, Any] = {
        "problem": {"id": problem.id, "question": problem.question, "gold": problem.gold, "meta": dict(problem.meta)},
        "sample": {"text": sample.text, "finish": sample.finish, "task": sample.task, "index": sample.index},
    }
    return json.dumps(message, ensure_ascii=True).encode() + b"\n"
