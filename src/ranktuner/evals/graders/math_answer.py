"""Grading mathematics: the answer is found (`extract`), taken apart (`values`), and its parts are compared.

The rules of comparison, once; docs/evaluation.md has them with examples:

- Order counts in a tuple, whoever wrote it; it does not in a list or set. Numbers of values must agree: hedging fails.
- The brackets of an interval count. `x > 2` is the interval it describes.
- Exact golds want exact answers; a decimal stands for what it is to 1e-6, or to the tolerance the set asks for.
- `p%` is p/100. Where gold or question speak of percent, the sign may be left off on either side.
- A base is part of the number. Units are taken off; two known ones that differ are wrong.
- Names before `=` are taken off; two that differ are wrong. Letters and words are compared as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ranktuner.evals.graders import algebra, pool
from ranktuner.evals.graders.compare import same
from ranktuner.evals.graders.extract import extract
from ranktuner.evals.graders.latex import depth
from ranktuner.evals.records import Grade, Problem, Sample

SECONDS = 10.0
"""Longest time for one answer; nearly all need a few milliseconds."""
MAX_DEPTH = 40
"""Brackets in brackets; beyond it the parser's time grows without bound, and no answer is written so."""
MAX_ANSWER = 3000
"""Characters; a longer answer is not read. The longest gold of the sets that come with RankTuner has about 300."""


def grade(items: Iterable[tuple[Problem, Sample]], *, workers: int = 2, seconds: float = SECONDS) -> Iterator[Grade]:
    """Grade mathematical answers in order, each in a worker that is killed after `seconds`."""
    return pool.grade(items, rule="ranktuner.evals.graders.math_answer:grade_one", workers=workers, seconds=seconds)


def grade_one(problem: Problem, sample: Sample) -> Grade:
    """Grade one answer here and now, without a time limit (the workers of `pool` call this)."""
    found = extract(sample.text, cut=sample.finish == "length")
    if found is None:
        if sample.finish == "length":
            return Grade("truncated", None, "no answer before the limit of new tokens")
        return Grade("unparsed", None, "no box, no 'answer is', no number")
    if len(found.text) > MAX_ANSWER or depth(found.text) > MAX_DEPTH:
        size = f"{len(found.text):,} characters, brackets {depth(found.text)} deep"
        return Grade("unparsed", found.text[:80] + "...", f"{found.rule}: not read: {size}")
    try:
        right, why = same(str(problem.gold), found.text, problem.meta, problem.question)
    except algebra.UnreadableError as error:
        return Grade("unparsed", found.text, f"{found.rule}: {error}")
    return Grade("correct" if right else "wrong", found.text, f"{found.rule}: {why}")


def check_gold(problem: Problem, sample: Sample) -> Grade:
    """Grade a gold as if a model had boxed it; being written alike is not enough here."""
    gold = str(problem.gold)
    found = extract("\\boxed{" + gold + "}", cut=False)
    if found is None:
        return Grade("unparsed", gold, "its braces are not closed")
    try:
        right, why = same(gold, found.text, problem.meta, problem.question, literal=False)
    except algebra.UnreadableError as error:
        return Grade("unparsed", gold, str(error))
    return Grade("correct" if right else "wrong", gold, why)


def prepare() -> None:
    """Load what grading needs; a worker does it before its first answer's time starts."""
    algebra.prepare()
