"""What a run asks of a task, resolved: problems, settings, files; and how it is noted for later calls."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ranktuner.errors import DataError, InputError
from ranktuner.evals.generators import Generator
from ranktuner.evals.journal import read_header
from ranktuner.evals.records import Problem
from ranktuner.evals.results import choose_ks
from ranktuner.evals.samples import Prompt, Settings, prompts_of
from ranktuner.evals.tasks import LoadReport, Task, task


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


def files_of(folder: Path, task: str) -> tuple[Path, Path]:
    """Return a task's sample store and grade file."""
    name = file_name(task)
    return folder / "samples" / f"{name}.jsonl", folder / "grades" / f"{name}.jsonl"


def file_name(task: str) -> str:
    """Return a task's name as a file may have it."""
    return re.sub(r"[^\w.+-]", "_", task)


def note_plan(folder: Path, plan: Plan, model: str, generator: Generator) -> None:
    """Write into run.json what was asked for, so that `ranktuner grade` needs the folder only."""
    path = folder / "run.json"
    record = read_run(folder) if path.exists() else {"tasks": {}}
    # The samples' own store refuses another model; here the last run's name stands.
    record |= {"model": model, "fingerprint": generator.fingerprint, "generator": generator.name}
    record["tasks"][plan.task.name] = {
        # From whatever folder `ranktuner grade` is called later.
        "task": os.path.abspath(plan.source) if plan.source.endswith(".toml") else plan.source,
        "n": plan.n,
        "ks": plan.ks,
        "limit": plan.limit,
        "data_dir": os.path.abspath(plan.data_dir) if plan.data_dir else None,
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
