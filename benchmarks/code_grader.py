"""How long the code grader takes for HumanEval and HumanEval+, ten samples a problem, and whether evalplus agrees.

Half of the samples are reference solutions as models write them (a continuation, a fenced block, a whole program, ...),
the other half are mutants of them with one small change, some of which never end.

    python benchmarks/code_grader.py --data DIR                # stores benchmarks/results/code_grader.json
    python benchmarks/code_grader.py --data DIR --samples 4 --sets humaneval+ --export samples.jsonl
    HUMANEVAL_OVERRIDE_PATH=HumanEvalPlus.jsonl evalplus.evaluate --dataset humaneval --samples samples.jsonl
    python benchmarks/code_grader.py --data DIR --samples 4 --agreement samples_eval_results.json

The last compares verdicts, sample by sample, base and plus, and stores benchmarks/results/code_agreement.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranktuner.evals.evalplus_io import write_samples
from ranktuner.evals.graders.python_code import grade
from ranktuner.evals.humaneval import answer_of_reference, read_problems
from ranktuner.evals.records import Problem, Sample
from ranktuner.evals.sandbox import choose
from ranktuner.findings import Finding, provenance

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "evals"))

from mutants import mutants  # noqa: E402  (the wrong solutions are those of the tests)

FILES = {"humaneval": "humaneval/HumanEval.jsonl", "humaneval+": "humaneval_plus/HumanEvalPlus.jsonl.gz"}


def answers(problem: Problem, place: int, count: int) -> list[str]:
    """Return `count` answers, half of them right."""
    code = answer_of_reference(problem)
    whole = problem.question + code
    right = [
        code,
        f"```python\n{whole}\n```",
        whole,
        f"Here is the function:\n\n```python\n{whole}\n```\n\nIt is right.",
        code + "\n\nprint('an example')\n",
    ]
    wrong = itertools.chain(mutants(whole, place), itertools.repeat(problem.question + "    return 'nothing'\n"))
    half = count // 2
    return [*itertools.islice(itertools.cycle(right), count - half), *itertools.islice(wrong, half)]


def samples_of(task: str, problems: list[Problem], count: int) -> list[tuple[Problem, Sample]]:
    return [
        (problem, Sample(task, problem.id, i, 0, text, "stop", 0, "", {}, "benchmark"))
        for place, problem in enumerate(problems)
        for i, text in enumerate(answers(problem, place, count))
    ]


def timed(task: str, problems: list[Problem], count: int, workers: int) -> dict[str, Any]:
    """Grade everything; return seconds, verdicts, and how many right answers were not correct."""
    items = samples_of(task, problems, count)
    began = time.perf_counter()
    grades = list(grade(items, workers=workers))
    seconds = time.perf_counter() - began
    missed = [
        s.problem
        for (_, s), g in zip(items, grades, strict=True)
        if s.index < count - count // 2 and g.verdict != "correct"
    ]
    verdicts = Counter(g.verdict for g in grades)
    mutated = [g for (_, s), g in zip(items, grades, strict=True) if s.index >= count - count // 2]
    return {
        "samples": len(items),
        "seconds": round(seconds, 1),
        "samples_per_second": round(len(items) / seconds, 2),
        "verdicts": dict(verdicts),
        "references_not_correct": missed,
        "mutants_correct": sum(g.verdict == "correct" for g in mutated),
    }


def agreement(theirs: Path, problems: list[Problem], count: int, workers: int) -> dict[str, Any]:
    """Compare our verdicts on base and on all inputs with evalplus's, sample by sample."""
    results = json.loads(theirs.read_text())["eval"]
    base = [replace(p, gold={**p.gold, "inputs": p.gold["inputs"][: p.gold["base"]]}) for p in problems]
    found: dict[str, Any] = {}
    for name, chosen in (("base", base), ("plus", problems)):
        items = samples_of("humaneval+", chosen, count)
        table: Counter[str] = Counter()
        differ = []
        for (problem, sample), ours in zip(items, grade(items, workers=workers), strict=True):
            row = results[problem.id][sample.index]
            passed = row["base_status"] == "pass" and (name == "base" or row["plus_status"] == "pass")
            table[f"evalplus {'pass' if passed else 'fail'}, ours {ours.verdict}"] += 1
            if passed != (ours.verdict == "correct"):
                failed = len(row["base_fail_tests"] or []) + len(row["plus_fail_tests"] or [])
                status = f"base {row['base_status']}, plus {row['plus_status']}, {failed} failed inputs named"
                differ.append({"problem": problem.id, "index": sample.index, "evalplus": status, "ours": ours.why})
        found[name] = {"samples": len(items), "table": dict(table), "differ": differ}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with humaneval/ and humaneval_plus/")
    parser.add_argument("--sets", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--samples", type=int, default=10, help="of each problem")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--export", type=Path, help="write the samples for evalplus, and grade nothing")
    parser.add_argument("--agreement", type=Path, help="evalplus's results on the exported samples")
    given = parser.parse_args()
    problems = {name: read_problems(given.data / FILES[name]) for name in given.sets}
    if given.export:
        (name,) = given.sets
        items = samples_of(name, problems[name], given.samples)
        print(write_samples(given.export, problems[name], (s for _, s in items)), "samples written to", given.export)
        return
    began = os.getloadavg()[0]
    if given.agreement:
        kind = "code_agreement"
        numbers = agreement(given.agreement, problems["humaneval+"], given.samples, given.workers)
    else:
        kind = "code_grader"
        numbers = {name: timed(name, problems[name], given.samples, given.workers) for name in given.sets}
    finding = Finding(
        kind,
        "Verdicts of the code grader beside evalplus's" if given.agreement else "Time of the code grader",
        sum(found["samples"] for found in numbers.values()),
        numbers,
        {"unit": "samples", "samples_per_problem": given.samples, "workers": given.workers, "sandbox": choose().kind},
        provenance(
            command=f"benchmarks/code_grader.py --samples {given.samples}"
            + (" --agreement FILE" if given.agreement else ""),
            cpu=processor(),
            cores=os.cpu_count(),
            kernel=platform.release(),
            bubblewrap=subprocess.run(
                ["bwrap", "--version"], capture_output=True, text=True, check=False
            ).stdout.strip(),
            load_before=round(began, 2),
            load_after=round(os.getloadavg()[0], 2),
        ),
    )
    print(finding.to_json())
    finding.save(ROOT / "benchmarks" / "results" / f"{kind}.json")


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


if __name__ == "__main__":
    main()
