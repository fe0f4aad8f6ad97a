"""Doing a cell: make, train, evaluate or diagnose, in the cell's own folder. What is half done is gone on with."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ranktuner.compare.jobs import DiagnoseJob, EvalJob, HeldOutJob, ModelJob, ProblemsJob, TaskJob, TrainJob
from ranktuner.compare.places import Cell, Place
from ranktuner.compare.planning import base_of
from ranktuner.errors import DataError

Say = Callable[[str], None]
Facts = dict[str, Any]


class Worker:
    """Does cells one after another, and keeps the last loaded model for the next that needs it.

    Args:
        cells: the folder of all cells.
        say: prints a line for people.
        quiet: show no progress.
    """

    def __init__(self, cells: Path, say: Say, quiet: bool = False) -> None:
        self.cells, self.say, self.quiet = cells, say, quiet
        self._loaded: tuple[Any, Any] | None = None

    def do(self, cell: Cell, folder: Path) -> Facts:
        """Do a cell whose needs are done; return what is to be known of it (seconds, tokens, ...).

        Raises:
            KeyboardInterrupt: it was stopped; what is done so far is kept.
        """
        began = time.monotonic()
        facts = self._by_kind(cell, folder)
        base = base_of(getattr(cell.job, "model", None))
        return {"seconds": round(time.monotonic() - began, 3), "base": base.facts if base else "", **facts}

    def _by_kind(self, cell: Cell, folder: Path) -> Facts:
        job = cell.job
        if cell.kind in ("model", "train", "eval", "diagnose"):
            from ranktuner.train.launch import quiet_libraries

            quiet_libraries()
        if isinstance(job, ModelJob):
            return _make_model(job, folder)
        if isinstance(job, ProblemsJob):
            from ranktuner.data.arithmetic import write

            write(folder, **job.config.model_dump())
            return {}
        if isinstance(job, TaskJob):
            from ranktuner.compare.stand_ins import write_task

            write_task(folder, job.name, job.grader, job.count)
            return {}
        if isinstance(job, HeldOutJob):
            return self._held_out(job, folder)
        if isinstance(job, TrainJob):
            self.release()
            return self._train(job, folder)
        if isinstance(job, EvalJob):
            return self._evaluate(job, folder)
        assert isinstance(job, DiagnoseJob)
        from ranktuner.compare.looking import Looking

        return Looking(self, job, cell, folder).do()

    def at(self, place: Place) -> str:
        """Return a place's path or hub id."""
        return place.at(self.cells)

    # --- data -----------------------------------------------------------------------------------------------------

    def rows(self, place: Place) -> Sequence[Any]:
        """Return the rows of data, without the empty ones."""
        from ranktuner.data.presets import open_data
        from ranktuner.data.rows import RowOptions

        return open_data([self.at(place)], RowOptions(skip_empty=True))  # type: ignore[return-value]

    def _held_out(self, job: HeldOutJob, folder: Path) -> Facts:
        from ranktuner.diagnostics.planting import draw

        trained = {_text(row) for place in job.train for row in self.rows(place)}
        every = self.rows(job.held_out)
        free = [row for row in every if _text(row) not in trained]
        if not free:
            raise DataError(f"{self.at(job.held_out)}: every row of it is trained on too; give other held-out rows")
        chosen = draw(free, job.rows, 0)
        lines = (json.dumps({"messages": [dict(m) for m in row.messages]}, ensure_ascii=False) for row in chosen)
        (folder / "held_out.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return {"rows": len(chosen), "trained_too": len(every) - len(free)}

    # --- training -------------------------------------------------------------------------------------------------

    def _train(self, job: TrainJob, folder: Path) -> Facts:
        from ranktuner.train.folder import RunFolder
        from ranktuner.train.run import train

        run = RunFolder(folder / "run")
        self._drop_if_other(run)
        last = run.last_checkpoint()
        before = int(last.name.removeprefix("step-")) if last else 0
        result = train(self._config(job, run.path), resume=True, quiet=self.quiet, part=True)
        if result.outcome == "stopped":
            raise KeyboardInterrupt
        lines = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
        tokens = sum(line.get("tokens", 0) for line in lines if line["step"] > before)
        shutil.rmtree(run.checkpoints, ignore_errors=True)  # several times the model's size, and of no use any more
        release()
        return {"tokens": tokens, "steps": result.steps, "eval_nll": result.metrics.get("eval_nll")}

    def _config(self, job: TrainJob, run: Path) -> Any:
        config = job.config
        data = {"source": [self.at(one) for one in job.source], "eval": [self.at(one) for one in job.held_out]}
        keep = {} if "keep" in config.checkpoint.model_fields_set else {"keep": 1}
        return config.model_copy(
            update={
                "model": config.model.model_copy(update={"path": self.at(job.model)}),
                "data": config.data.model_copy(update=data),
                "checkpoint": config.checkpoint.model_copy(update=keep),
                "output": str(run),
            }
        )

    def _drop_if_other(self, run: Any) -> None:
        """Begin anew where a half-done run was begun on a machine that computes in another precision."""
        from ranktuner.train.config import make_config
        from ranktuner.train.plan import choose_device

        record = run.record()
        if record is None:
            # Killed before run.json was there: nothing to go on from, and a folder that is not empty is refused.
            shutil.rmtree(run.path, ignore_errors=True)
            return
        if record.get("outcome") == "finished":
            return
        said = record["config"]["model"]["dtype"]
        as_asked = make_config({"model": {"path": "MODEL"}, "data": {"source": ["DATA"]}})
        now = "bf16" if choose_device(as_asked)[1] else "fp32"
        if said != now and run.steps():
            self.say(f"{run.path}: begun in {said}, and this machine computes in {now}: begun anew")
            shutil.rmtree(run.path)

    # --- evaluating -----------------------------------------------------------------------------------------------

    def asks(self, job: EvalJob, ks: tuple[int, ...] | None = None) -> Any:
        """Return the plan of an evaluation, with its problems loaded."""
        from ranktuner.evals.run import Ask, plan

        c = job.config
        return plan(
            Ask(
                self.at(job.task) if job.task.cell else job.task.path,
                n=job.n,
                ks=ks,
                limit=c.limit,
                temperature=c.temperature,
                top_p=c.top_p,
                max_new_tokens=c.max_new_tokens,
                seed=c.seed,
                data_dir=c.data_dir,
            )
        )

    def _evaluate(self, job: EvalJob, folder: Path) -> Facts:
        from ranktuner.cli.eval_progress import Bar
        from ranktuner.evals.grade import Limits
        from ranktuner.evals.run import evaluate

        planned = self.asks(job)
        for line in planned.report.lines():
            self.say(line)
        generator = self._generator(job)
        form = generator.form if job.config.prompt == "auto" else job.config.prompt
        limits = Limits(2, job.config.grade_seconds, job.config.allow_unsafe)
        began = time.monotonic()
        with Bar(self.quiet, "sampled") as bar:
            counted = _Counted(bar)
            evaluate(
                planned.for_form(form), generator, folder, model=job.title, limits=limits, watch=counted, say=self.say
            )
        # Loading and grading what was there already is not drawing: speed is that of a whole evaluation otherwise.
        return {"tokens": counted.tokens, "samples": counted.samples, "seconds": round(time.monotonic() - began, 3)}

    def _generator(self, job: EvalJob) -> Any:
        path, c = self.at(job.model), job.config
        key = (path, c.generator, c.dtype, c.batch)
        if self._loaded and self._loaded[0] == key:
            return self._loaded[1]
        self.release()
        self.say(f"loading {path}")
        if c.generator == "vllm":
            from ranktuner.evals.generators.vllm_engine import VllmGenerator

            made: Any = VllmGenerator.load(path, dtype=c.dtype)
        else:
            from ranktuner.evals.generators.hf import TransformersGenerator

            made = TransformersGenerator.load(path, dtype=c.dtype, batch=c.batch)
        self._loaded = (key, made)
        return made

    def release(self) -> None:
        """Let go of the loaded model."""
        self._loaded = None
        release()


class _Counted:
    """A watch that counts what is drawn now, and passes everything on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.tokens = self.samples = 0

    def sampled(self, sample: Any) -> None:
        self.tokens += sample.tokens
        self.samples += 1
        self._inner.sampled(sample)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def release() -> None:
    """Give memory back that nothing holds any more."""
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _make_model(job: ModelJob, folder: Path) -> Facts:
    target = folder / "model"
    if job.name == "smollm2":
        from ranktuner.pretrained import fetch_smollm2

        found = fetch_smollm2()
        target.unlink(missing_ok=True)
        target.symlink_to(found, target_is_directory=True)
    else:
        from ranktuner.compare.stand_ins import write_tiny_model

        write_tiny_model(target, job.seed)
    return {}


def _text(row: Any) -> str:
    """What makes two rows the same for a learner."""
    return json.dumps([[m["role"], m.get("content")] for m in row.messages], ensure_ascii=False)
