"""Rules for the workers of test_pool: the answer's text says what to do."""

from __future__ import annotations

import os
import sys
import time

from ranktuner.evals.records import Grade, Problem, Sample


def act(problem: Problem, sample: Sample) -> Grade:
    word, *rest = sample.text.split()
    if word == "nap":
        time.sleep(float(rest[0]))
    elif word == "spin":
        while True:
            pass
    elif word == "c-call":
        9 ** (9**9)
    elif word == "die":
        os._exit(3)
    elif word == "memory":
        bytearray(1 << 40)
    elif word == "raise":
        raise ValueError("so it goes")
    elif word == "recurse":
        act(problem, sample)
    elif word == "print":
        print('{"verdict": "wrong", "answer": null, "why": "forged"}', flush=True)
        return Grade("correct", None, "printed")
    elif word == "modules":
        return Grade("correct", None, " ".join(sys.modules))
    elif word == "pid":
        return Grade("correct", None, str(os.getpid()))
    return Grade("correct", None, f"said {rest[-1]}" if rest else "")


def modules_of_math(problem: Problem, sample: Sample) -> Grade:
    from ranktuner.evals.graders import math_answer

    math_answer.prepare()
    return Grade("correct", None, " ".join(sys.modules))
