"""One attempt at judging one answer to one problem, in the sandbox."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ranktuner.errors import DataError
from ranktuner.evals.graders.code_problem import CodeProblem
from ranktuner.evals.graders.code_values import ORACLES, listed, same, shown, shown_call
from ranktuner.evals.inside import plain
from ranktuner.evals.records import Grade, Verdict
from ranktuner.evals.sandbox import Conversation, Ended, Limits, Sandbox

CALLS_PER_SAMPLE = 15
"""A sample may take this many times what one call may: 60 s for 4 s a call."""
FACTOR = 4
REFERENCE_S = 60.0
"""A call of the reference may take this long."""
REPLY_BYTES = 32 << 20
"""Longest value that a test program is handed."""
SLACK_BYTES = 1 << 16
"""A reply to an input may be this much longer than twice the expected value. Beyond, it is wrong without being read:
rebuilding a value that cannot be equal must cost the grader nothing."""
VERDICTS: dict[str, Verdict] = {"timeout": "timeout", "stopped": "error"}
"""Of an ended conversation; whatever else ended it is wrong."""


@dataclass(frozen=True)
class Time:
    """Wall-clock limits of an attempt."""

    call_s: float
    sample_s: float

    @staticmethod
    def of(seconds: float, slowest_s: float = 0.0, total_s: float = 0.0) -> Time:
        """Return the limits: max(seconds, 4 x the reference's slowest call) for a call."""
        call_s = max(seconds, FACTOR * slowest_s)
        return Time(call_s, max(CALLS_PER_SAMPLE * seconds, call_s, FACTOR * total_s))


@dataclass(frozen=True)
class Expected:
    """What the calls of a problem with inputs should return, and how long the reference took."""

    frame: bytes
    """The calls, packed once for all samples."""
    values: list[Any]
    sizes: list[int]
    """Bytes of each value when packed."""
    slowest_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """A grade, and how long it took."""

    grade: Grade
    starved: bool = False
    """A time-out in which the process had much less processor time than time: the machine may be to blame."""
    slowest_s: float = 0.0
    """Of a single call."""
    total_s: float = 0.0


class Judged(Exception):  # noqa: N818 - not an error
    """The verdict is known before the end."""

    def __init__(self, verdict: Verdict, why: str, starved: bool = False) -> None:
        super().__init__(why)
        self.verdict: Verdict = verdict
        self.starved = starved


class Talk:
    """A conversation with a candidate, in which whatever goes wrong is a verdict."""

    def __init__(self, conversation: Conversation, limits: Time) -> None:
        self.conversation, self.limits = conversation, limits
        self.began = self.asked = time.monotonic()
        self.slowest_s = 0.0

    def send(self, payload: bytes) -> None:
        """Write a frame."""
        self.asked = time.monotonic()
        try:
            self.conversation.send(payload, self.asked + self.limits.call_s)
        except Ended as ended:
            raise self.judged(ended, "") from None

    def hear(self, doing: Callable[[], str], at_most: int = REPLY_BYTES) -> bytes:
        """Return the next frame; the time limit of a call runs from the frame before it. `doing` names the call."""
        deadline = min(self.asked + self.limits.call_s, self.began + self.limits.sample_s)
        try:
            payload = self.conversation.receive(deadline, at_most)
        except Ended as ended:
            raise self.judged(ended, doing()) from None
        now = time.monotonic()
        self.slowest_s = max(self.slowest_s, now - self.asked)
        self.asked = now
        return payload

    def judged(self, ended: Ended, doing: str) -> Judged:
        """Return the verdict of a conversation that came to its end."""
        spent = time.monotonic() - self.began
        starved = ended.kind == "timeout" and self.conversation.cpu_s < 0.8 * spent
        limit = f" of {self.limits.call_s:g} s" if ended.kind == "timeout" else ""
        return Judged(VERDICTS.get(ended.kind, "wrong"), f"{doing}{': ' if doing else ''}{ended}{limit}", starved)


@dataclass(frozen=True)
class Bench:
    """Where attempts run."""

    sandbox: Sandbox
    stop: threading.Event

    def attempt(
        self, problem: CodeProblem, expected: Expected | None, text: str, limits: Time, exact: bool = False
    ) -> Attempt:
        """Judge one answer. `expected` is None where a test program decides; `exact`: run the text as it stands."""
        code: str | None = None
        try:
            with self._converse(
                "serve", problem, limits, text=text, prompt=problem.prompt, exact=exact
            ) as conversation:
                talk = Talk(conversation, limits)
                code = read_code(talk)
                load(talk)
                if expected is None:
                    why = self._check_tests(talk, problem, limits)
                else:
                    why = check_inputs(talk, problem, expected)
                spent = time.monotonic() - talk.began
                return Attempt(Grade("correct", code, why), False, talk.slowest_s, spent)
        except Judged as judged:
            return Attempt(Grade(judged.verdict, code, one_line(str(judged))), judged.starved)

    def _converse(self, role: str, problem: CodeProblem, limits: Time, **job: Any) -> Any:
        job = {"role": role, "entry_point": problem.entry_point, "exact": False, **job}
        return self.sandbox.converse(job, Limits(cpu_s=int(limits.sample_s) + 10), self.stop)

    def expect(self, problem: CodeProblem) -> Expected:
        """Return what the calls should return: the problem's outputs, or what its reference says."""
        frame = json.dumps([plain.pack([arguments, {}]) for arguments in problem.inputs]).encode()
        if problem.outputs is not None:
            return Expected(frame, problem.outputs, [len(plain.dumps(value)) for value in problem.outputs])
        limits = Time(REFERENCE_S, 10 * REFERENCE_S)
        values, sizes = [], []
        try:
            with self._converse(
                "serve", problem, limits, text=problem.reference, prompt=problem.prompt
            ) as conversation:
                talk = Talk(conversation, limits)
                read_code(talk)
                load(talk)
                talk.send(frame)
                for arguments in problem.inputs:
                    payload = talk.hear(lambda a=arguments: shown_call(problem.entry_point, a), REPLY_BYTES)  # type: ignore[misc]
                    values.append(self_equal(payload, problem, arguments))
                    sizes.append(len(payload))
                return Expected(frame, values, sizes, talk.slowest_s, time.monotonic() - talk.began)
        except Judged as judged:
            raise DataError(
                f"the reference of problem {problem.id} fails its own inputs: {one_line(str(judged))}; "
                "expected a plain value for each"
            ) from None

    def _check_tests(self, talk: Talk, problem: CodeProblem, limits: Time) -> str:
        """Carry calls from the test program to the candidate and values back; return why the answer is right."""
        job = {"tests": problem.tests, "prompt": problem.prompt, "reference": problem.reference}
        calls, call, reply = 0, b"", b""
        try:
            with self._converse("judge", problem, limits, **job) as judge:
                loaded = json.loads(judge.receive(time.monotonic() + REFERENCE_S))
                if "broken" in loaded:
                    raise DataError(f"the tests of problem {problem.id} do not load: {': '.join(loaded['broken'])}")
                talk.began = time.monotonic()
                while (message := judge.receive(talk.began + limits.sample_s, REPLY_BYTES)).startswith(b"["):
                    call, calls = message, calls + 1
                    talk.send(call)
                    reply = talk.hear(lambda asked=call: described_call(problem, asked))  # type: ignore[misc]
                    judge.send(reply, talk.began + limits.sample_s)
        except Ended as ended:  # of the judge: it runs no candidate's code, but works on a candidate's values
            last = f"{described_call(problem, call)}: " if call else ""
            raise Judged(VERDICTS.get(ended.kind, "wrong" if call else "error"), f"{last}the tests: {ended}") from None
        verdict = json.loads(message)
        if verdict["verdict"]:
            return f"the tests pass, {calls} calls"
        raised = ": ".join(filter(None, verdict["raised"]))
        last = f"{described_call(problem, call)} {described_reply(reply)}; " if call else ""
        raise Judged("wrong", f"{last}the tests stop at `{verdict['line']}`, {raised}")


def read_code(talk: Talk) -> str:
    """Let the process find the program in the answer; return it for people to read."""
    found = fields(talk.hear(lambda: "reading the answer"))
    if "code" not in found:
        raise Judged("unparsed", str(found.get("unparsed", "no program")))
    return str(found["code"])


def load(talk: Talk) -> None:
    """Let the candidate's definitions run. From here on nothing that the process says is to be trusted."""
    payload = talk.hear(lambda: "running the definitions", SLACK_BYTES)
    if "loaded" not in fields(payload):
        raise Judged("wrong", f"running the definitions {described_reply(payload)}")


def check_inputs(talk: Talk, problem: CodeProblem, expected: Expected) -> str:
    """Compare the value of every call with the expected one; return the line that says why the answer is right."""
    right = ORACLES[problem.oracle] if problem.oracle else None
    talk.send(expected.frame)
    count = len(problem.inputs)
    for i, (arguments, value) in enumerate(zip(problem.inputs, expected.values, strict=True)):
        part = "" if problem.base == count else ", base" if i < problem.base else ", plus"
        where = f"input {i + 1} of {count}{part}"

        def doing(arguments: list[Any] = arguments, where: str = where) -> str:
            return f"{shown_call(problem.entry_point, arguments)} ({where})"

        found = returned(talk.hear(doing, SLACK_BYTES + 2 * expected.sizes[i]), problem, arguments, where)
        found = listed(found) if problem.outputs is not None else found
        if not (right(arguments, found, problem.atol) if right else same(found, value, problem.atol)):
            raise Judged("wrong", f"{doing()} returned {shown(found)}, expected {shown(value)}")
    return f"{count} of {count} inputs"


def fields(payload: bytes) -> dict[str, Any]:
    """Return the JSON object of a frame that may be hostile."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Judged("wrong", "the process wrote nonsense into the grader's pipe")
    return found


def returned(payload: bytes, problem: CodeProblem, arguments: list[Any], where: str = "") -> Any:
    """Return the value that a reply carries; Judged where the call raised, or returned what is not plain data."""
    reply = fields(payload)
    if "value" in reply:
        try:
            return plain.unpack_hostile(reply["value"])
        except (plain.PlainError, RecursionError) as error:
            raise Judged("wrong", f"the process wrote nonsense into the grader's pipe: {error}") from None
    call = shown_call(problem.entry_point, arguments)
    raise Judged("wrong", f"{call}{f' ({where})' if where else ''} {described_reply(payload)}")


def self_equal(payload: bytes, problem: CodeProblem, arguments: list[Any]) -> Any:
    """Return a value of the reference that accepts itself; an iterator or a NaN would make every answer wrong."""
    value, again = returned(payload, problem, arguments), returned(payload, problem, arguments)
    accepted = (
        ORACLES[problem.oracle](arguments, value, problem.atol) if problem.oracle else same(again, value, problem.atol)
    )
    if not accepted:
        call = shown_call(problem.entry_point, arguments)
        raise Judged("error", f"{call} returned {shown(value)}, which is not accepted against itself")
    return value


def described_reply(payload: bytes) -> str:
    """Return for people what a call came to."""
    if len(payload) > SLACK_BYTES:
        return f"returned a value of {len(payload)} bytes"
    try:
        reply = fields(payload)
        if "value" in reply:
            return f"returned {shown(plain.unpack(reply['value']))}"
        if "unplain" in reply:
            return f"returned {str(reply['unplain'])[:200]}, which is not plain data"
        return "raised " + ": ".join(str(part)[:200] for part in reply["raised"] if part)
    except (Judged, plain.PlainError, RecursionError, KeyError, TypeError):
        return "returned nonsense"


def described_call(problem: CodeProblem, frame: bytes) -> str:
    """Return for people a call that the test program made."""
    try:
        ((arguments, named),) = (plain.unpack(call) for call in json.loads(frame))
        return shown_call(problem.entry_point, [*arguments, *named.values()])
    except (ValueError, TypeError):
        return f"{problem.entry_point}(...)"


def one_line(text: str) -> str:
    """Return the text without line breaks and control characters, of a length for a table."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 400 else text[:397] + "..."
