"""A generator and a grader that need no model: an answer is a function of its seed, right or wrong by its digits.

Run as a program it makes one evaluation, for tests that kill it:  python stand_in.py TOML FOLDER N SECONDS_A_SAMPLE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ranktuner.evals import graders
from ranktuner.evals.records import Grade, Problem, Sample
from ranktuner.evals.run import Ask, evaluate, plan
from ranktuner.evals.samples import Answer, Request, Settings
from ranktuner.findings import Finding


class StandIn:
    """Answers at once, in an order of its own, some of them cut off."""

    name = "stand-in"
    form = "chat"

    def __init__(self, fingerprint: str = "stand-in", seconds: float = 0.0) -> None:
        self.fingerprint, self.seconds = fingerprint, seconds
        self.asked: list[tuple[str, int]] = []

    def generate(self, requests: Sequence[Request], settings: Settings) -> Iterator[Answer]:
        for request in sorted(requests, key=lambda request: request.seed):
            self.asked.append((request.problem, request.index))
            time.sleep(self.seconds)
            digits = str(request.seed)
            finish = "length" if digits.endswith("7") else "stop"
            yield Answer(request, f"The answer is {digits[-1]}. \u2028é" * (1 + request.seed % 50), finish, len(digits))


def grade(items: Iterable[tuple[Problem, Sample]], *, workers: int = 1, seconds: float = 1.0) -> Iterator[Grade]:
    for problem, sample in items:
        if sample.finish == "error":
            yield Grade("error", None, sample.note)
        elif sample.finish == "length":
            yield Grade("truncated", None, "cut off")
        elif not (answer := sample.text.split(".")[0][-1:]).isdecimal():
            yield Grade("unparsed", None, "no digit")
        else:
            right = int(answer) % 3 == int(problem.gold) % 3
            yield Grade("correct" if right else "wrong", answer, "by its digit")


def use() -> None:
    """Let the grader `math` be the one above."""
    graders.GRADERS["math"] = f"{__name__}:grade"


def write_task(folder: Path, problems: int = 5, name: str = "digits") -> Path:
    """Write a user's own task; return its .toml."""
    rows = [{"question": f"Which digit is number {i}?", "answer": str(i % 10), "key": f"p{i}"} for i in range(problems)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    toml = folder / f"{name}.toml"
    toml.write_text(
        f'name = "{name}"\ndata = "rows.jsonl"\ngrader = "math"\nid = "key"\nn = 4\nks = [1, 2, 4]\n'
        "[decoding]\ntemperature = 1.0\nmax_new_tokens = 50\n"
    )
    return toml


def run(toml: Path, folder: Path, n: int, seconds: float = 0.0) -> Finding:
    use()
    return evaluate(plan(Ask(str(toml), n=n)).for_form("chat"), StandIn(seconds=seconds), folder, say=_say)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    toml_, folder_, n_, seconds_ = sys.argv[1:]
    run(Path(toml_), Path(folder_), int(n_), float(seconds_))
