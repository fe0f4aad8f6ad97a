"""One training run from configuration to model folder: `ranktuner.train(config)`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing as closing_file
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranktuner.train.config import TrainConfig, make_config, read_config
from ranktuner.train.describe import closing, describe
from ranktuner.train.folder import Claim, RunFolder
from ranktuner.train.launch import check_launch, check_processes, on_main, quiet_libraries
from ranktuner.train.plan import Plan, Prepared, World, prepare
from ranktuner.train.record import Recorder, now, resolve
from ranktuner.train.stopping import stop_signals
from ranktuner.train.telemetry import Display, MetricsFile, main_console


@dataclass(frozen=True)
class RunResult:
    """What a run came to."""

    output: Path
    plan: Plan
    outcome: str
    """finished, stopped (by a signal, resumable) or planned (a dry run)."""
    steps: int
    metrics: dict[str, Any]
    """The last logged line."""


def train(
    config: TrainConfig | Mapping[str, Any] | str | Path,
    *,
    resume: bool = False,
    dry_run: bool = False,
    quiet: bool = False,
    part: bool = False,
) -> RunResult:
    """Fine-tune a model as a configuration says.

    Args:
        config: a `TrainConfig`, a nested mapping of its fields, or the path of a TOML file.
        resume: go on with the run in the output folder; starts it where there is none yet.
        dry_run: make and print the plan only.
        quiet: print nothing.
        part: the run is a part of something larger, which says what comes next.

    Returns:
        The result; the model is in its `output / "model"`.
    """
    config = as_config(config)
    world = World.from_environment()
    console = main_console(world.rank, quiet)
    say = Display(0, 0, console).say
    check_launch(config, world)
    quiet_libraries()
    if config.output and not dry_run and world.rank == 0:
        RunFolder(config.output).check(resume)  # before anything is read
    prepared = prepare(config, world)
    plan = prepared.plan
    for line in describe(plan, config):
        say(line)
    folder = RunFolder(plan.output)
    if dry_run:
        return RunResult(folder.path, plan, "planned", 0, {})
    try:
        return _run(config, prepared, folder, resume, console, part)
    finally:
        folder.release()


def as_config(config: TrainConfig | Mapping[str, Any] | str | Path) -> TrainConfig:
    """Return the configuration of whatever form it was given in."""
    if isinstance(config, TrainConfig):
        return config
    return make_config(config) if isinstance(config, Mapping) else read_config(config)


def _run(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, resume: bool, console: Any, part: bool
) -> RunResult:
    from ranktuner.train.build import build_arguments, build_trainer

    plan = prepared.plan
    world = World.from_environment()
    arguments = build_arguments(config, plan, folder)  # joins the processes
    check_processes(world, arguments.world_size)
    resolved = resolve(config, plan)
    claim = on_main(lambda: _claim(folder, resolved, plan.fingerprint, resume))
    if claim.finished:
        Display(0, 0, console).say(f"finished already: {folder.model}")
        return RunResult(folder.path, plan, "finished", plan.steps, (folder.record() or {}).get("last", {}))
    main = world.rank == 0
    metrics = MetricsFile(folder.metrics) if main else None
    start = time.monotonic()
    with (
        nullcontext() if metrics is None else closing_file(metrics),
        Recorder(folder, resolved, plan, main) as recorder,
        Display(plan.steps, claim.step, console) as display,
        stop_signals() as stop,
    ):
        if claim.checkpoint:
            display.say(f"resume   after step {claim.step}, from {claim.checkpoint}")
        trainer = build_trainer(config, prepared, arguments, folder, metrics, display, lambda: stop.requested)
        trainer.train(resume_from_checkpoint=claim.checkpoint)
        if not trainer.stopped:
            trainer.save_result()
        outcome = "stopped" if trainer.stopped else "finished"
        last = trainer.last_record
        recorder.save(
            outcome=outcome, ended=now(), seconds=round(time.monotonic() - start, 1), last=last, active=trainer.active
        )
    for line in () if part else closing(folder, plan, outcome, trainer.state.global_step, config):
        Display(0, 0, console).say(line)
    return RunResult(folder.path, plan, outcome, trainer.state.global_step, last)


def _claim(folder: RunFolder, resolved: dict[str, Any], fingerprint: str, resume: bool) -> Claim:
    folder.check(resume)  # first, so that no lock is left in a folder of somebody else's
    folder.hold()
    return folder.claim(resolved, fingerprint, resume)
