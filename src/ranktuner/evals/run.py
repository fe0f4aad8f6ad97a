"""One evaluation: problems -> samples -> grades -> Findings, in one folder that any later call goes on from.

RUN/run.json              what was asked for: tasks, n, limits, model, generator
RUN/samples/TASK.jsonl    every finished sample, appended as it finishes
RUN/grades/TASK.jsonl     its verdict
RUN/findings/*.json       pass@k and the samples to browse, for `ranktuner report`
RUN/results.md, .tex      the tables
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ranktuner.evals import tables
from ranktuner.evals.generators import Generator
from ranktuner.evals.grade import GradeBook, Grading, Limits
from ranktuner.evals.journal import read_header, set_aside
from ranktuner.evals.plan import Ask, Plan, file_name, files_of, note_plan, plan, stored_plans
from ranktuner.evals.records import Grade, Sample
from ranktuner.evals.results import Outcome, pass_at_k_finding, samples_finding
from ranktuner.evals.samples import SampleStore, read_samples
from ranktuner.findings import Finding

__all__ = ["Ask", "Plan", "Silent", "Watch", "evaluate", "grade_again", "plan", "stored_plans"]

Say = Callable[[str], None]


class Watch(Protocol):
    """Who is told how a run goes on; the command line draws it."""

    def started(self, task: str, total: int, done: int) -> None:
        """A task begins: samples wanted, and those that the store holds already."""

    def sampled(self, sample: Sample) -> None:
        """A sample is finished and stored."""

    def graded(self, sample: Sample, grade: Grade) -> None:
        """A sample is graded (called from the grading thread)."""

    def ended(self) -> None:
        """The task is over, or was interrupted."""


class Silent:
    """A watch that says nothing."""

    def started(self, task: str, total: int, done: int) -> None: ...  # noqa: D102

    def sampled(self, sample: Sample) -> None: ...  # noqa: D102

    def graded(self, sample: Sample, grade: Grade) -> None: ...  # noqa: D102

    def ended(self) -> None: ...  # noqa: D102


def evaluate(
    plan: Plan,
    generator: Generator,
    folder: str | Path,
    *,
    model: str = "",
    fresh: bool = False,
    limits: Limits | None = None,
    watch: Watch | None = None,
    say: Say = print,
) -> Finding:
    """Generate what is missing, grade what is not graded, and write the Findings of one task.

    Args:
        plan: see `plan`; its prompts' form must be settled (`for_form`).
        generator: what writes the samples.
        folder: the run's.
        model: the model's name, for people; the fingerprint tells models apart.
        fresh: set an earlier store aside instead of going on from it.
        limits: of grading.
        watch: is told of every sample and grade.
        say: is told of repairs and what was set aside.

    Returns:
        the Finding `pass-at-k`.
    """
    folder, watch, limits = Path(folder), watch or Silent(), limits or Limits()
    samples_at, grades_at = files_of(folder, plan.task.name)
    if fresh:
        for path in (samples_at, grades_at):
            if path.exists():
                say(f"{path} set aside as {set_aside(path).name}")
    facts = {"model": model, "generator": generator.name, "data": plan.report.source}
    prompts = plan.prompts()
    with (
        SampleStore(
            samples_at,
            task=plan.task.name,
            model=generator.fingerprint,
            settings=plan.settings,
            facts=facts,
            say=say,
        ) as store,
        _book(grades_at, plan, limits, say) as book,
    ):
        missing = store.missing(prompts, plan.n)
        note_plan(folder, plan, model, generator)  # only now: a run that was refused changes nothing
        samples = list(store.samples())
        grading = _grading(book, plan, limits, watch)
        watch.started(plan.task.name, len(prompts) * plan.n, len(prompts) * plan.n - len(missing))
        try:
            for sample in samples:
                grading.add(sample)
            for answer in generator.generate(missing, plan.settings) if missing else ():
                sample = store.add(answer)
                samples.append(sample)
                watch.sampled(sample)
                grading.add(sample)
            grading.finish()
        except BaseException:
            grading.cancel()
            raise
        finally:
            watch.ended()
        return write_findings(folder, plan, samples, book.grades(), model, generator.fingerprint, generator.name)


def grade_again(
    plan: Plan,
    folder: str | Path,
    *,
    again: bool = False,
    limits: Limits | None = None,
    watch: Watch | None = None,
    say: Say = print,
) -> Finding:
    """Grade a task's stored samples and write the Findings; nothing is generated.

    Args:
        plan: see `stored_plans`.
        folder: the run's.
        again: set earlier grades aside and grade everything.
        limits: of grading.
        watch: is told of every grade.
        say: is told of repairs and what was set aside.
    """
    folder, watch, limits = Path(folder), watch or Silent(), limits or Limits()
    samples_at, grades_at = files_of(folder, plan.task.name)
    header = read_header(samples_at)
    samples = list(read_samples(samples_at, say))
    if again and grades_at.exists():
        say(f"{grades_at} set aside as {set_aside(grades_at).name}")
    with _book(grades_at, plan, limits, say) as book:
        grading = _grading(book, plan, limits, watch)
        watch.started(plan.task.name, len(samples), 0)
        try:
            for sample in samples:
                grading.add(sample)
            grading.finish()
        except BaseException:
            grading.cancel()
            raise
        finally:
            watch.ended()
        facts = header.get("facts") or {}
        return write_findings(
            folder, plan, samples, book.grades(), facts.get("model", ""), header["model"], facts.get("generator", "")
        )


def _book(path: Path, plan: Plan, limits: Limits, say: Say) -> GradeBook:
    grader, golds = plan.task.grader, plan.report.sha256
    return GradeBook(path, task=plan.task.name, grader=grader, golds=golds, limits=limits, say=say)


def _grading(book: GradeBook, plan: Plan, limits: Limits, watch: Watch) -> Grading:
    problems = {problem.id: problem for problem in plan.problems}
    return Grading(book, problems, plan.task.grader, limits, watch.graded)


def write_findings(
    folder: Path,
    plan: Plan,
    samples: Sequence[Sample],
    grades: Mapping[tuple[str, int], Grade],
    model: str,
    fingerprint: str,
    generator: str,
) -> Finding:
    """Write the Findings of one task and the tables of all tasks of the run; return the one of pass@k."""
    outcome = Outcome.of(plan.task.name, plan.task.title, plan.problems, plan.n, samples, grades)
    protocol = {
        "model": model,
        "fingerprint": fingerprint,
        "generator": generator,
        "decoding": plan.settings.to_json(),
        "prompt": plan.task.prompt.chat if plan.settings.form == "chat" else plan.task.prompt.plain,
        "grader": plan.task.grader,
        "data": {"source": plan.report.source, "sha256": plan.report.sha256, "limit": plan.limit},
        "expected_problems": plan.report.expected,
        "found_problems": plan.report.found,
    }
    found = pass_at_k_finding(outcome, plan.usual_ks, plan.ks, protocol=protocol)
    name = file_name(plan.task.name)
    found.save(folder / "findings" / f"pass-at-k-{name}.json")
    samples_finding(outcome, plan.prompts()).save(folder / "findings" / f"samples-{name}.json")
    every = [Finding.load(path) for path in sorted((folder / "findings").glob("pass-at-k-*.json"))]
    (folder / "results.md").write_text(tables.markdown(every), encoding="utf-8")
    (folder / "results.tex").write_text(tables.latex(every), encoding="utf-8")
    return found
