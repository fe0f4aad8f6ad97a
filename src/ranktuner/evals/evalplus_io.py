"""Samples as evalplus and human-eval write them: JSON lines of `task_id` and `completion` or `solution`.

human-eval reads `completion`, the text behind the prompt; evalplus reads `solution`, a whole program, or
`completion`. Both take the lines of a task as its samples, in order. What is written here is, for each sample, the
program that our own grader runs, so that their verdict is on the same code. An answer without a program is written
all the same, as the prompt and the text behind it: a sample left out would change n.

    evalplus.evaluate --dataset humaneval --samples samples.jsonl         grades what `write_samples` wrote
    evaluate_functional_correctness samples.jsonl                         likewise, with form="completion"
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from ranktuner.errors import DataError, InputError, nearest
from ranktuner.evals import sandbox
from ranktuner.evals.graders.code_problem import CodeProblem, read_problem
from ranktuner.evals.humaneval import rows
from ranktuner.evals.records import Problem, Sample
from ranktuner.evals.sandbox import Ended, Limits

READING_S = 10.0
"""For finding the program in one answer."""


def write_samples(
    path: Path,
    problems: Iterable[Problem],
    samples: Iterable[Sample],
    *,
    form: Literal["solution", "completion"] = "solution",
    partial: bool = False,
) -> int:
    """Write samples for another harness, in the order (problem, index); return their number.

    path: the JSONL to write
    problems: of the task; both harnesses refuse a file in which one of them has no sample
    samples: ours
    form: `solution` for evalplus (whole programs), `completion` for human-eval (the text behind the prompt)
    partial: write the file although problems are missing
    """
    known = {problem.id: read_problem(problem) for problem in problems}
    order = {name: place for place, name in enumerate(known)}
    ordered = sorted(samples, key=lambda s: (order.get(s.problem, -1), s.index))
    for sample in ordered:
        if sample.problem not in known:
            near = nearest(sample.problem, known)
            raise InputError(f"a sample of problem {sample.problem!r}, which is not in the task; {near}")
    missing = [name for name in known if name not in {sample.problem for sample in ordered}]
    if missing and not partial:
        raise InputError(
            f"{len(missing)} of {len(known)} problems have no sample ({', '.join(missing[:3])} ...): evalplus and "
            "human-eval refuse such a file; generate the rest, or pass partial=True to write it all the same"
        )
    asked = [(known[sample.problem], sample.text) for sample in ordered]
    with path.open("w", encoding="utf-8") as file:
        for sample, program in zip(ordered, programs(asked), strict=True):
            prompt = known[sample.problem].prompt
            text = prompt + sample.text if program is None else program
            line = {"task_id": sample.problem, form: text if form == "solution" else behind(prompt, text)}
            file.write(json.dumps(line) + "\n")
    return len(ordered)


def behind(prompt: str, program: str) -> str:
    """Return what stands behind the prompt, so that prompt and this together are the program (or amount to it)."""
    if program.startswith(prompt):
        return program[len(prompt) :]
    start = prompt.rstrip()
    return "\n" + (program[len(start) :] if program.startswith(start) else program)


def programs(asked: Iterable[tuple[CodeProblem, str]]) -> Iterator[str | None]:
    """Yield the program found in each answer, None where there is none. Texts are read in a sandbox; nothing is run."""
    reader = sandbox.choose(allow_unsafe=True)
    waiting = list(asked)[::-1]
    while waiting:
        with reader.converse({"role": "extract"}, Limits()) as conversation:
            while waiting:
                problem, text = waiting.pop()
                deadline = time.monotonic() + READING_S
                question = {"text": text, "prompt": problem.prompt, "entry_point": problem.entry_point}
                try:
                    conversation.send(json.dumps(question).encode(), deadline)
                    yield json.loads(conversation.receive(deadline, 1 << 24)).get("program")
                except Ended:  # a text that the parser does not survive: the next ones in a new process
                    yield None
                    break


def read_samples(path: Path, problems: Iterable[Problem], task: str) -> list[Sample]:
    """Return the samples of another harness's file (JSONL, gzip or not), to be run as the programs they are.

    path: lines with `task_id` and `solution`, or `completion`; other fields are passed over
    problems: of the task, whose ids the file names; problems without a line are allowed (count them before you compare)
    task: name of the task in our records
    """
    known = {problem.id: problem for problem in problems}
    seen: Counter[str] = Counter()
    samples = []
    for line, row in rows(path):
        where = f"{path}:{line}"
        name = row.get("task_id")
        if name not in known:
            near = (
                nearest(str(name), known)
                if name is not None
                else f"the line has {', '.join(sorted(row)) or 'no field'}"
            )
            raise DataError(f"{where}: task_id is {name!r}, which is no problem of {task}; {near}")
        samples.append(_sample(task, known[name], seen[name], _program(row, known[name], where), path.name))
        seen[name] += 1
    if not samples:
        raise DataError(f'{path}: no samples; expected lines such as {{"task_id": "HumanEval/0", "completion": "..."}}')
    return samples


def _program(row: Mapping[str, Any], problem: Problem, where: str) -> str:
    for name, before in (("solution", ""), ("completion", str(problem.meta.get("prompt", problem.question)))):
        if name in row:
            if not isinstance(row[name], str):
                raise DataError(
                    f"{where}: {name} is a {type(row[name]).__name__}; expected a string, and one line for each sample"
                )
            return before + str(row[name])
    raise DataError(f"{where}: neither 'completion' nor 'solution'; the line has {', '.join(sorted(row))}")


def _sample(task: str, problem: Problem, index: int, program: str, source: str) -> Sample:
    """Return the record of a sample of which only the program is known."""
    return Sample(
        task=task,
        problem=problem.id,
        index=index,
        seed=0,
        text=program,
        finish="stop",
        tokens=0,
        prompt_hash="",
        decoding={"form": "program"},
        model=source,
    )
