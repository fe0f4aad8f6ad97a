"""The program of a grading worker: reads an item a line, writes a grade a line. Started by `pool`, never imported."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from importlib import import_module

from ranktuner.errors import RankTunerError
from ranktuner.evals.records import Grade, Problem, Sample


def main(rule: str, memory: int, seconds: float) -> None:
    """Grade what comes in until the input ends.

    Args:
        rule: `module:function`.
        memory: bytes of address space.
        seconds: the pool's limit for one answer.
    """
    # What a library prints must not be taken for a grade: the grades have their own copy of standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.set_int_max_str_digits(100_000)
    module, _, name = rule.partition(":")
    try:
        grade_one = getattr(import_module(module), name)
        prepare = getattr(import_module(module), "prepare", None)
        if prepare is not None:
            prepare()
    except RankTunerError as error:
        print(json.dumps({"failed": str(error)}), file=answers, flush=True)
        return
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        # The pool kills a late worker; where the pool itself was killed, the kernel does, even inside a C call.
        signal.alarm(int(seconds) + 5)
        print(json.dumps(asdict(_graded(grade_one, line))), file=answers, flush=True)
        signal.alarm(0)


def _graded(grade_one: object, line: str) -> Grade:
    message = json.loads(line)
    sample = {
        "problem": "",
        "seed": 0,
        "tokens": 0,
        "prompt_hash": "",
        "decoding": {},
        "model": "",
        **message["sample"],
    }
    try:
        grade = grade_one(Problem(**message["problem"]), Sample(**sample))  # type: ignore[operator]
        assert isinstance(grade, Grade)
        return grade
    except RecursionError:
        return Grade("unparsed", None, "nested too deeply to be read")
    except MemoryError:
        return Grade("error", None, "the grader ran out of memory")
    except Exception as error:  # a grader that fails on one answer must say so and go on to the next
        return Grade("error", None, f"the grader failed: {type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
