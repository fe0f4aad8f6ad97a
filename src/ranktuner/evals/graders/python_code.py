"""Grading Python code: the candidate answers calls in a sandbox, and somebody else decides what the answers are worth.

What a problem of a code task must hold (JSON values only):

`Problem.question`  the prompt: for HumanEval the code up to and with the docstring, which the answer may continue.
`Problem.meta`
    "entry_point"   the function's name (required)
    "prompt"        the code that stands before a continuation; `question` where absent. A chat task whose question is
                    prose sets it to the imports and helpers that the answer may take for granted, or to "".
    "reference"     a right solution: a continuation of the prompt, or a whole program (optional; required where the
                    gold has inputs without outputs). It is also what "the gold is accepted against itself" runs.
    "oracle"        the name of a rule that replaces equality, see `code_values.ORACLES` (optional)
`Problem.gold`      one of
    {"tests": program}                      a program that defines `check(candidate)`, as HumanEval's
    {"inputs": [[arg, ...], ...], "outputs": [value, ...], "atol": 0.0}
    {"inputs": [[arg, ...], ...], "atol": 0.0, "base": 7}      the outputs are the reference's; the first `base` inputs
                                            are told apart from the rest in `Grade.why`

`ranktuner.evals.humaneval` makes such problems from rows of the two sets:

    read_problems(path) -> list[Problem]          a file of HumanEval, or of HumanEval+ in any of its three formats
    problem_of_row(row, number) -> Problem        one row of either, or of a user's own task (see below)
    answer_of_reference(problem) -> str           the text that must be graded correct

A user's own code task is a JSONL with these names as columns: `question`, `entry_point`, and `tests`, or `inputs` with
`outputs` or `reference`; `user_problem(row, id)` reads one row.

    grade(items, *, workers=2, seconds=None, allow_unsafe=False) -> Iterator[Grade]      in the order of the items

A sample whose `decoding` says `{"form": "program"}` is run as it stands (`evalplus_io` makes such); of any other the
code is first found in the answer, by the rules in `inside/answer.py`.

How an answer is judged. The candidate's process gets arguments and returns plain values, nothing else: expected
values, tests and verdict stay outside. With inputs, values are compared here (`code_values`). A test program runs in a
sandbox of its own, with the reference's names around it, and its `candidate` asks the candidate's process over this
one; arguments are copied, so the tests do not see what the candidate does to them.

Limits: a call may take max(4 s, 4 x the reference's slowest call), a sample 15 x 4 s (or 4 x the reference's whole time
where that is more). A time-out is tried once more with nothing else of ours running and three times as long, unless the
process had nearly all of the processor time there was: then the machine was not what was slow.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ranktuner.errors import DataError, InputError, UnsupportedError
from ranktuner.evals import sandbox
from ranktuner.evals.graders.code_problem import CodeProblem, read_problem
from ranktuner.evals.graders.code_run import REFERENCE_S, Attempt, Bench, Expected, Time
from ranktuner.evals.records import Grade, Problem, Sample

CALL_S = 4.0
PATIENCE = 3
"""The second try may take this many times as long: other people's work on the machine does not stop for us."""


def grade(
    items: Iterable[tuple[Problem, Sample]],
    *,
    workers: int = 2,
    seconds: float | None = None,
    allow_unsafe: bool = False,
) -> Iterator[Grade]:
    """Yield the grade of each (problem, sample), in order.

    workers: sandboxes at a time
    seconds: least time limit of one call of the candidate's function; 4 s where not given
    allow_unsafe: where bubblewrap does not work, run the code in a limited process instead of refusing
    """
    if workers < 1 or (seconds is not None and seconds <= 0):
        raise InputError(f"workers={workers}, seconds={seconds}: expected at least one worker and a time above 0")
    bench = Bench(sandbox.choose(allow_unsafe), threading.Event())
    return _grade(items, workers, _Grading(bench, CALL_S if seconds is None else seconds))


def _grade(items: Iterable[tuple[Problem, Sample]], workers: int, grading: _Grading) -> Iterator[Grade]:
    """Threads wait and compare; what takes time runs in the sandboxes, which are processes and can be killed."""
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="code-grader")
    pending: deque[Future[Grade]] = deque()
    try:
        for problem, sample in items:
            pending.append(pool.submit(grading.grade, problem, sample))
            if len(pending) >= 4 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # also where the caller stops early: no sandbox outlives the grading
        grading.bench.stop.set()
        pool.shutdown(cancel_futures=True)


class _Grading:
    """The problems seen so far, and the rule for time-outs."""

    def __init__(self, bench: Bench, seconds: float) -> None:
        self.bench, self.seconds = bench, seconds
        self._gate = _Gate()
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Known] = {}

    def grade(self, problem: Problem, sample: Sample) -> Grade:
        """Grade one sample."""
        with self._lock:
            known = self._known.setdefault((sample.task, problem.id), _Known(read_problem(problem)))
        if sample.finish == "error":
            return Grade("error", None, sample.note or "the generator failed on this sample")
        if not sample.text.strip():
            return Grade("unparsed", None, "the answer is empty")
        try:
            grade = self._grade(known, sample.text, sample.decoding.get("form") == "program")
        except UnsupportedError as error:  # the sandbox worked at the start, and now does not
            return Grade("error", None, str(error))
        except DataError as error:  # the problem's own reference or tests fail: nobody's answer is judged by them
            return Grade("error", None, str(error))
        if grade.verdict == "unparsed" and sample.finish == "length":
            return Grade("truncated", grade.answer, f"the limit of new tokens was hit; {grade.why}")
        return grade

    def _grade(self, known: _Known, text: str, exact: bool) -> Grade:
        problem = known.problem
        with self._gate.shared():
            expected = known.expect(self.bench)
            limits = Time.of(self.seconds, *known.reference_times)
            attempt = self.bench.attempt(problem, expected, text, limits, exact)
        if attempt.grade.verdict != "timeout":
            return attempt.grade
        with self._gate.alone():
            slower = Time.of(self.seconds, *known.time_tests(self.bench))
            if not attempt.starved and slower == limits:
                return attempt.grade
            slower = Time(PATIENCE * slower.call_s, PATIENCE * slower.sample_s)
            again = self.bench.attempt(problem, expected, text, slower, exact).grade
        why = f"{again.why} (again, alone)" if again.verdict == "timeout" else f"{again.why} (at the second try, alone)"
        return Grade(again.verdict, again.answer, why)


class _Known:
    """What is worked out once for a problem, when it is first needed."""

    def __init__(self, problem: CodeProblem) -> None:
        self.problem = problem
        self.reference_times = (0.0, 0.0)
        self._lock = threading.Lock()
        self._expected: Expected | None = None
        self._timed = False

    def expect(self, bench: Bench) -> Expected | None:
        """Return the expected values; None where a test program decides."""
        if self.problem.tests is not None:
            return None
        with self._lock:
            if self._expected is None:
                self._expected = bench.expect(self.problem)
                self.reference_times = (self._expected.slowest_s, self._expected.total_s)
            return self._expected

    def time_tests(self, bench: Bench) -> tuple[float, float]:
        """Return the reference's (slowest call, whole time); with a test program it is run only for a time-out."""
        with self._lock:
            if self.problem.tests is not None and self.problem.reference is not None and not self._timed:
                limits = Time(REFERENCE_S, 10 * REFERENCE_S)
                attempt: Attempt = bench.attempt(self.problem, None, self.problem.reference, limits)
                self.reference_times, self._timed = (attempt.slowest_s, attempt.total_s), True
            return self.reference_times


class _Gate:
    """Many may be inside at a time, or one that asked to be alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._asking = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._asking)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._asking += 1
            self._changed.wait_for(lambda: not self._inside)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._asking -= 1
                self._changed.notify_all()
