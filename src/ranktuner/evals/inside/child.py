"""The process inside the sandbox: it confines itself, then plays one of three roles.

`serve` calls the candidate; `judge` runs a test program; `extract` only reads answers.

Frames on the two pipes (once stdin and stdout, moved away before anything else runs): 4 bytes of length, 16 bytes of
nonce, JSON. The nonce comes with the first frame. It keeps stray bytes of the candidate out of the conversation;
nothing is proved by it, since this process never utters a verdict on the candidate: it only says what a call
returned.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import resource
import sys
import types
from collections.abc import Callable
from typing import Any

from ranktuner.evals.inside import plain
from ranktuner.evals.inside.answer import NoProgram, program_of, prompt_alone

MESSAGE = 300
"""Characters of an exception's message that are worth carrying."""


class Channel:
    """Frames to and from the grader."""

    def __init__(self) -> None:
        self.input, self.output = (
            os.dup(0),
            os.dup(1),
        )  # not inheritable by a program that it starts
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        self._write, self._read = os.write, os.read
        self.nonce = b""

    def receive(self) -> bytes:
        """Return the next frame's payload; end the process where the grader is gone."""
        head = self._exactly(20)
        self.nonce = self.nonce or head[4:]
        return self._exactly(int.from_bytes(head[:4], "big"))

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._read(self.input, min(count, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, payload: bytes) -> None:
        """Write one frame."""
        frame = memoryview(len(payload).to_bytes(4, "big") + self.nonce + payload)
        while frame:
            frame = frame[self._write(self.output, frame) :]

    def say(self, **fields: Any) -> None:
        """Send a JSON object."""
        self.send(json.dumps(fields).encode("ascii"))


def confine(limits: dict[str, int], uids: list[int]) -> None:
    """Give up privileges, and set limits that this process cannot raise again."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, this goes first; the file is closed to us once the user has changed
    if os.getuid() == 0 and uids:
        with contextlib.suppress(OSError):
            os.chown(".", uids[0], uids[0])
        os.setgroups([])
        for uid in uids:
            try:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                break
            except OSError:  # not mapped in this user namespace
                continue
        else:
            raise SystemExit("could not leave the root user")
    for name, limit in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(which, (limit, limit))


def module(name: str) -> dict[str, Any]:
    """Return the namespace of a new module; dataclasses and typing look it up in sys.modules."""
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name].__dict__


def described(error: BaseException) -> list[str]:
    """Return [class name, beginning of the message] of an exception that may be hostile."""
    try:
        return [type(error).__name__[:100], str(error)[:MESSAGE]]
    except BaseException:
        return ["Exception", ""]


def serve(channel: Channel, job: dict[str, Any]) -> None:
    """Load a candidate, then answer each frame of calls with one frame a call."""
    try:
        program, code = job["text"], job["text"]
        if not job["exact"]:
            program, code = program_of(job["text"], job["prompt"], job["entry_point"])
    except NoProgram as none:
        return channel.say(unparsed=str(none)[:MESSAGE])
    channel.say(code=code)
    namespace = module("answer")
    try:
        exec(compile(program, "<answer>", "exec"), namespace)
        function = namespace[job["entry_point"]]
    except BaseException as error:
        return channel.say(raised=described(error))
    channel.say(loaded=True)
    while True:
        for call in json.loads(channel.receive()):
            arguments = plain.unpack(call)
            channel.send(answer_call(function, arguments))


def extract(channel: Channel, job: dict[str, Any]) -> None:
    """Answer each frame (text, prompt, entry point) with the program that would be run; nothing is run."""
    while True:
        asked = json.loads(channel.receive())
        try:
            channel.say(program=program_of(asked["text"], asked["prompt"], asked["entry_point"])[0])
        except NoProgram as none:
            channel.say(unparsed=str(none)[:MESSAGE])


def answer_call(function: Callable[..., Any], arguments: list[Any]) -> bytes:
    """Call the candidate; return the packed value, or what it raised, as JSON."""
    positional, named = arguments
    try:
        value = function(*positional, **named)
        return b'{"value":' + plain.dumps(value) + b"}"
    except plain.PlainError as error:
        return json.dumps({"unplain": str(error)[:MESSAGE]}).encode("ascii")
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: none of them ends the conversation
        return json.dumps({"raised": described(error)}).encode("ascii")


UNRAISED = (StopIteration, UnicodeError)
"""Builtin exceptions that a stand-in must not raise: one ends a loop silently, the other wants five arguments."""


class CandidateError(RuntimeError):
    """What a test program sees where the candidate raised something that is not a builtin exception."""


def judge(channel: Channel, job: dict[str, Any]) -> None:
    """Run a trusted test program, `check(candidate)`, whose candidate is a stand-in that asks over the pipe.

    The names of the prompt mean the reference's, not the candidate's: a helper that the candidate replaced
    (`poly = lambda *_: 0`) does not come near the tests. The verdict is this process's word; no candidate runs here.
    """
    namespace = module("tests")
    try:
        exec(compile(prelude(job), "<reference>", "exec"), namespace)
        if job["reference"] is None:
            namespace[job["entry_point"]] = stand_in(channel)
        exec(compile(job["tests"], "<tests>", "exec"), namespace)
        check = namespace["check"]
    except BaseException as error:
        return channel.say(broken=described(error))
    channel.say(loaded=True)
    try:
        check(stand_in(channel))
    except BaseException as error:
        line = failing_line(error, job["tests"])
        return channel.say(verdict=False, raised=described(error), line=line)
    return channel.say(verdict=True)


def prelude(job: dict[str, Any]) -> str:
    """Return the program around the tests: the reference where there is one, else what the prompt defines."""
    if job["reference"] is None:
        return prompt_alone(job["prompt"])
    return program_of(job["reference"], job["prompt"], job["entry_point"])[0]


def stand_in(channel: Channel) -> Callable[..., Any]:
    """Return the `candidate` of the tests. Arguments are copied: what the candidate does to them is not seen here."""

    def candidate(*args: Any, **kwargs: Any) -> Any:
        channel.send(b"[" + plain.dumps([list(args), kwargs]) + b"]")
        reply = json.loads(channel.receive())
        if "value" in reply:
            return plain.unpack_hostile(reply["value"])
        name, message = reply.get("raised") or ["TypeError", f"the candidate returned {reply.get('unplain')}"]
        known = getattr(builtins, str(name), None)
        if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, UNRAISED):
            raise known(message)
        raise CandidateError(f"{name}: {message}")

    return candidate


def failing_line(error: BaseException, tests: str) -> str:
    """Return the line of the tests where `error` arose."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            found = tests.split("\n")[trace.tb_lineno - 1].strip()
        trace = trace.tb_next
    return found[:MESSAGE]


def main() -> None:
    """Hold one conversation."""
    channel = Channel()
    setup = json.loads(channel.receive())
    sys.path.extend(setup["packages"])
    confine(setup["limits"], setup["uids"])
    channel.say(ready=True)
    job = json.loads(channel.receive())
    {"serve": serve, "judge": judge, "extract": extract}[job.pop("role")](channel, job)


if __name__ == "__main__":
    main()
