"""One evaluation: problems -> samples -> grades -> Findings, in one folder that any later call goes on from.

RUN/run.json              what was asked for: tasks, n, limits, model, generator
RUN/samples/TASK.jsonl    every finished sample, appended as it finishes
RUN/grades/TASK.jsonl     its verdict
RUN/findings/*.json       pass@k and the samples to browse, for `ranktuner report`
RUN/results.md, .tex      the tables
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from ranktuner.errors import DataError, InputError
from ranktuner.evals import tables
from ranktuner.evals.generators import Generator
from ranktuner.evals.grade import GradeBook, Grading, Limits
from ranktuner.evals.journal import read_header, set_aside
from ranktuner.evals.records import Grade, Problem, Sample
from ranktuner.evals.results import Outcome, choose_ks, pass_at_k_finding, samples_finding
from ranktuner.evals.samples import Prompt, SampleStore, Settings, prompts_of, read_samples
from ranktuner.evals.tasks import LoadReport, Task, task
from ranktuner.findings import Finding

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


@dataclass(frozen=True)
class Ask:
    """What a run wants of a task; None everywhere is the paper's protocol."""

    task: str
    """A name, or the path of a user's own .toml."""
    n: int | None = None
    ks: tuple[int, ...] | None = None
    limit: int | None = None
    """Only the first problems."""
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    seed: int = 0
    data_dir: str | None = None


@dataclass(frozen=True)
class Plan:
    """A task with its problems loaded and its settings resolved."""

    task: Task
    problems: tuple[Problem, ...]
    report: LoadReport
    n: int
    ks: tuple[int, ...] | None
    """What the user asked for, refused where there are fewer samples; None: the usual ones, up to n."""
    usual_ks: tuple[int, ...]
    settings: Settings
    limit: int | None
    source: str
    """The task's name, or the path of its .toml."""
    data_dir: str | None

    def prompts(self) -> dict[str, Prompt]:
        """Return the prompt of every problem, in the form that the settings say."""
        prompt = self.task.messages if self.settings.form == "chat" else self.task.plain
        return prompts_of(self.problems, prompt)

    def for_form(self, form: Literal["chat", "plain"]) -> Plan:
        """Return the plan with prompts in this form; plain ones end at the task's stop strings."""
        stop = self.task.prompt.stop if form == "plain" else ()
        return replace(self, settings=replace(self.settings, form=form, stop=stop))


def plan(ask: Ask) -> Plan:
    """Load a task's problems and resolve its settings; everything that can be refused without a model is refused."""
    chosen = task(ask.task)
    for name, value in (("n", ask.n), ("limit", ask.limit)):
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}: expected at least 1")
    n = ask.n or chosen.n
    if ask.ks is not None:
        choose_ks(ask.ks, chosen.ks, n, chosen.name)
    own = chosen.decoding
    settings = Settings(
        temperature=own.temperature if ask.temperature is None else ask.temperature,
        top_p=own.top_p if ask.top_p is None else ask.top_p,
        max_new_tokens=own.max_new_tokens if ask.max_new_tokens is None else ask.max_new_tokens,
        seed=ask.seed,
    )
    loaded = chosen.load(ask.data_dir)
    problems = loaded.problems[: ask.limit]
    if not problems:
        raise DataError(f"task {chosen.name}: no problems in {loaded.report.source}")
    return Plan(
        task=chosen,
        problems=problems,
        report=loaded.report,
        n=n,
        ks=ask.ks,
        usual_ks=chosen.ks,
        settings=settings,
        limit=ask.limit,
        source=ask.task,
        data_dir=ask.data_dir,
    )


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
    note_plan(folder, plan, model, generator)
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
    name = _file_name(plan.task.name)
    found.save(folder / "findings" / f"pass-at-k-{name}.json")
    samples_finding(outcome, plan.prompts()).save(folder / "findings" / f"samples-{name}.json")
    every = [Finding.load(path) for path in sorted((folder / "findings").glob("pass-at-k-*.json"))]
    (folder / "results.md").write_text(tables.markdown(every), encoding="utf-8")
    (folder / "results.tex").write_text(tables.latex(every), encoding="utf-8")
    return found


def files_of(folder: Path, task: str) -> tuple[Path, Path]:
    """Return a task's sample store and grade file."""
    name = _file_name(task)
    return folder / "samples" / f"{name}.jsonl", folder / "grades" / f"{name}.jsonl"


def _file_name(task: str) -> str:
    return re.sub(r"[^\w.+-]", "_", task)


def note_plan(folder: Path, plan: Plan, model: str, generator: Generator) -> None:
    """Write into run.json what was asked for, so that `ranktuner grade` needs the folder only."""
    path = folder / "run.json"
    record = read_run(folder) if path.exists() else {"tasks": {}}
    # The samples' own store refuses another model; here the last run's name stands.
    record |= {"model": model, "fingerprint": generator.fingerprint, "generator": generator.name}
    record["tasks"][plan.task.name] = {
        "task": plan.source,
        "n": plan.n,
        "ks": plan.ks,
        "limit": plan.limit,
        "data_dir": plan.data_dir,
    }
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name("run.json.part")
    part.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)


def read_run(folder: Path) -> dict[str, Any]:
    """Return what run.json says."""
    path = folder / "run.json"
    if not path.exists():
        raise DataError(f"{folder}: no run.json in it; expected the --output folder of a `ranktuner eval`")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["tasks"].items()
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: not the record of an evaluation ({error}): run `ranktuner eval` again") from error
    return dict(record)


def stored_plans(folder: str | Path, data_dir: str | None = None, ks: tuple[int, ...] | None = None) -> list[Plan]:
    """Return the plans of a run's tasks as they were made, for grading again.

    Args:
        folder: the run's.
        data_dir: where the data is now, if it moved.
        ks: other k than the run's.
    """
    plans = []
    for name, asked in read_run(Path(folder))["tasks"].items():
        samples_at, _ = files_of(Path(folder), name)
        if not samples_at.exists():
            continue
        decoding = read_header(samples_at)["decoding"]
        made = plan(
            Ask(
                asked["task"],
                n=asked["n"],
                ks=ks,
                limit=asked["limit"],
                data_dir=data_dir or asked["data_dir"],
            )
        )
        # The run's own k are the usual ones here: a run that was stopped early is reported as far as it goes.
        usual = tuple(asked["ks"] or made.usual_ks)
        plans.append(replace(made, usual_ks=usual, settings=Settings(**decoding)))
    if not plans:
        raise DataError(f"{folder}: no samples in it yet; run `ranktuner eval` with --output {folder}")
    return plans
