"""From grades to numbers: pass@k with its uncertainty and everything that belongs beside it, as Findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from ranktuner.errors import InputError
from ranktuner.evals.passk import BOOTSTRAP_DRAWS, pooled_pass_at_k, uncertainty
from ranktuner.evals.records import VERDICTS, Grade, Problem, Sample
from ranktuner.evals.samples import Prompt
from ranktuner.findings import Finding, provenance

MOST_SAMPLES = 2000
"""As many samples go into the Finding that is browsed; the store has all."""

BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Outcome:
    """Everything known of one task after grading."""

    task: str
    title: str
    problems: Mapping[str, Problem]
    """Those that were asked, by id."""
    n: int
    """Samples wanted of each."""
    samples: Sequence[Sample]
    grades: Mapping[tuple[str, int], Grade]

    @staticmethod
    def of(
        task: str,
        title: str,
        problems: Sequence[Problem],
        n: int,
        samples: Sequence[Sample],
        grades: Mapping[tuple[str, int], Grade],
    ) -> Outcome:
        """Take what belongs to these problems and the first n samples of each, and is graded."""
        known = {problem.id: problem for problem in problems}
        kept = [s for s in samples if s.problem in known and s.index < n and (s.problem, s.index) in grades]
        kept.sort(key=lambda s: s.index)
        return Outcome(task, title, known, n, kept, grades)

    def verdict(self, sample: Sample) -> str:
        """Return the sample's verdict."""
        return self.grades[sample.problem, sample.index].verdict

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return problem -> (graded samples, correct ones), for problems that have any, in the task's order."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for sample in self.samples:
            found[sample.problem][0] += 1
            found[sample.problem][1] += self.verdict(sample) == "correct"
        return {problem: (found[problem][0], found[problem][1]) for problem in self.problems if problem in found}


def choose_ks(ks: Sequence[int] | None, usual: Sequence[int], n: int, task: str) -> list[int]:
    """Return the k to report: those asked for, which must not exceed n, or the usual ones up to n.

    Args:
        ks: what the user asked for; None for the task's usual ones.
        usual: the task's.
        n: finished samples of the problem that has the fewest.
        task: for messages.
    """
    if ks is None:
        return [k for k in usual if k <= n] or [n]
    if not ks or min(ks) < 1:
        raise InputError(f"k = {list(ks)}: expected numbers of at least 1")
    if max(ks) > n:
        raise InputError(
            f"task {task}: pass@{max(ks)} needs {max(ks)} samples of every problem, and there are {n}: raise --n to "
            f"{max(ks)}, or ask for k up to {n}"
        )
    return sorted(set(ks))


def pass_at_k_finding(
    outcome: Outcome,
    usual_ks: Sequence[int],
    ks: Sequence[int] | None = None,
    *,
    protocol: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Finding:
    """Return the Finding `pass-at-k` of one task; its layout is in docs/evaluation.md.

    Args:
        outcome: samples and grades.
        usual_ks: the task's k; those above the finished n are left out and named.
        ks: the user's k; one above the finished n is refused.
        protocol: model, decoding, prompt, data: what another person needs.
        facts: more for the provenance.
    """
    counts = outcome.counts()
    if not counts:
        raise InputError(f"task {outcome.task}: no sample is graded yet, so there is nothing to report")
    names, pairs = list(counts), list(counts.values())
    least, most = min(n for n, _ in pairs), max(n for n, _ in pairs)
    chosen = choose_ks(ks, usual_ks, least, outcome.task)
    rows = []
    for k in chosen:
        spread = uncertainty(pairs, k, seed=BOOTSTRAP_SEED)
        rows.append(
            {
                "k": k,
                "value": pooled_pass_at_k(pairs, k, names),
                "standard_error": spread.standard_error,
                "low": spread.low,
                "high": spread.high,
            }
        )
    unfinished = [p for p in outcome.problems if counts.get(p, (0, 0))[0] < outcome.n]
    numbers = {
        "task": outcome.task,
        "pass_at_k": rows,
        "not_measured": [k for k in usual_ks if k <= outcome.n and k > least] if ks is None else [],
        "samples": len(outcome.samples),
        "n": outcome.n,
        "n_least": least,
        "n_most": most,
        "complete": not unfinished,
        "unfinished_problems": len(unfinished),
        "problems_without_samples": len(outcome.problems) - len(counts),
        "verdicts": _verdicts(outcome),
        "most_errors": _most_errors(outcome),
        "truncated": sum(s.finish == "length" for s in outcome.samples),
        "tokens": _tokens(outcome.samples),
        "same_answers": _same_answers(outcome),
        "problems": [{"problem": name, "n": n, "correct": c} for name, (n, c) in counts.items()],
    }
    interval = f"95 % percentile bootstrap over problems, {BOOTSTRAP_DRAWS} draws, seed {BOOTSTRAP_SEED}"
    return Finding(
        kind="pass-at-k",
        title=f"{outcome.title}: pass@k",
        n=len(counts),
        numbers=numbers,
        protocol={"unit": "problem", "interval": interval, **(protocol or {})},
        provenance=provenance(**facts),
    )


def samples_finding(outcome: Outcome, prompts: Mapping[str, Prompt], most: int = MOST_SAMPLES, **facts: Any) -> Finding:
    """Return the Finding `samples`: prompts, answers, verdicts and why, to browse; layout in docs/evaluation.md.

    Where there are too many, the first samples of every problem are taken, as many of each as fit.
    """
    shown = outcome.samples[:most]  # they are ordered by index: first the first sample of every problem
    asked = {sample.problem for sample in shown}
    numbers = {
        "task": outcome.task,
        "found": len(outcome.samples),
        "shown": len(shown),
        "problems": {
            name: {"prompt": prompt_text(prompts[name]), "gold": gold_text(problem)}
            for name, problem in outcome.problems.items()
            if name in asked
        },
        "samples": [_sample_row(outcome, sample) for sample in shown],
    }
    return Finding(
        kind="samples",
        title=f"{outcome.title}: samples",
        n=len(shown),
        numbers=numbers,
        protocol={"unit": "sample"},
        provenance=provenance(**facts),
    )


def _sample_row(outcome: Outcome, sample: Sample) -> dict[str, Any]:
    grade = outcome.grades[sample.problem, sample.index]
    return {
        "problem": sample.problem,
        "index": sample.index,
        "seed": sample.seed,
        "text": sample.text,
        "finish": sample.finish,
        "tokens": sample.tokens,
        "verdict": grade.verdict,
        "answer": grade.answer,
        "why": grade.why,
    }


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text for people."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(m["content"] if m["role"] == "user" else f"[{m['role']}] {m['content']}" for m in prompt)


def gold_text(problem: Problem) -> str:
    """Return what was expected as one text for people; tests of code are named, not shown."""
    gold = problem.gold
    if isinstance(gold, Mapping):
        if "inputs" in gold:
            return f"{len(gold['inputs'])} calls must answer as the reference does"
        return str(gold.get("tests", gold))
    if isinstance(gold, (list, tuple)):
        return ", ".join(map(str, gold))
    return str(gold)


def _verdicts(outcome: Outcome) -> dict[str, int]:
    found = Counter(outcome.verdict(sample) for sample in outcome.samples)
    return {verdict: found[verdict] for verdict in VERDICTS}


def _most_errors(outcome: Outcome) -> str:
    """Return the commonest reason of the verdict `error`, the first where several are as common; empty without any."""
    grades = [outcome.grades[sample.problem, sample.index] for sample in outcome.samples]
    found = Counter(" ".join(grade.why.split())[:300] for grade in grades if grade.verdict == "error")
    return found.most_common(1)[0][0] if found else ""


def _tokens(samples: Sequence[Sample]) -> dict[str, float]:
    tokens = [sample.tokens for sample in samples]
    return {"mean": fmean(tokens), "median": float(median(tokens)), "most": max(tokens), "sum": sum(tokens)}


def _same_answers(outcome: Outcome) -> int:
    """Count problems with several samples that are all the same text: the sign of a server that ignores seeds."""
    texts: dict[str, list[str]] = defaultdict(list)
    for sample in outcome.samples:
        if sample.finish != "error":
            texts[sample.problem].append(sample.text)
    return sum(len(all_) > 1 and len(set(all_)) == 1 for all_ in texts.values())
