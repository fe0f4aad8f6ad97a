"""Doing a diagnostic: token tables of one model, and the Finding that they give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranktuner.compare.jobs import DiagnoseJob, EvalJob
from ranktuner.compare.places import Cell
from ranktuner.diagnostics.planting import draw, prompt_of
from ranktuner.findings import Finding

if TYPE_CHECKING:
    from ranktuner.compare.work import Worker

FINDING = "finding.json"


class Looking:
    """One diagnostic cell."""

    def __init__(self, worker: Worker, job: DiagnoseJob, cell: Cell, folder: Path) -> None:
        self.worker, self.job, self.cell, self.folder = worker, job, cell, folder

    def do(self) -> dict[str, Any]:
        """Make the cell's tables and its Finding."""
        kind = self.job.config.kind
        if kind == "surface":
            from ranktuner.diagnostics.surface import surface

            surface().save(self.folder / FINDING)
            return {}
        self.worker.release()
        if kind == "inference-entropy":
            from ranktuner.diagnostics.inference_entropy import inference_entropy

            tables = self._sample_tables()
            inference_entropy(tables).save(self.folder / FINDING)
        elif kind == "noise":
            tables = {"noise": None}
            self._noise().save(self.folder / FINDING)
        else:
            tables = self._tables()
            self._found(tables).save(self.folder / FINDING)
        self.worker.release()
        return {"tables": sorted(tables)}

    def _scorer(self) -> Any:
        from ranktuner.diagnostics.making import Scorer

        assert self.job.model is not None
        path, config = self.worker.at(self.job.model), self.job.config
        self.worker.say(f"loading {path}")
        return Scorer.load(
            path,
            dtype=config.dtype,
            max_length=config.max_length,
            methods=self.job.methods,
            prompt_suffix=self.job.prompt_suffix,
            tell=_Told(self.worker.say),
        )

    def _tables(self) -> dict[str, Any]:
        """A token table of each set."""
        config = self.job.config
        drawn = {name: self._drawn(place) for name, place in self.job.data}
        scorer = self._scorer()
        seed = config.seeds[0]
        sources = dict(self.job.data)
        return {
            name: scorer.table(
                self.folder / f"{name}.parquet", rows, name, data=self.worker.at(sources[name]), seed=seed
            )
            for name, rows in drawn.items()
        }

    def _drawn(self, place: Any) -> list[Any]:
        rows, config = self.worker.rows(place), self.job.config
        return draw(rows, config.rows or len(rows), config.seeds[0])

    def _found(self, tables: Mapping[str, Any]) -> Finding:
        from ranktuner.diagnostics import gradients, regimes, tightness, tokens
        from ranktuner.diagnostics.table import concatenate

        kind, methods = self.job.config.kind, self.job.methods
        if kind == "tightness":
            return tightness.tightness(tables)
        if kind == "regimes":
            return regimes.regimes(tables, methods)
        one = next(iter(tables.values())) if len(tables) == 1 else concatenate(list(tables.values()))
        if kind == "gradients":
            return gradients.gradients(one, methods)
        rows = [row for _, place in self.job.data for row in self._drawn(place)]
        return tokens.tokens(one, methods, prompts={row.id: prompt_of(row) for row in rows})

    def _noise(self) -> Finding:
        from ranktuner.diagnostics.making import noise_tables, noisy_rows
        from ranktuner.diagnostics.noise import noise

        config = self.job.config
        rows = [row for _, place in self.job.data for row in self.worker.rows(place)]
        foreign = [row for place in self.job.noise for row in self.worker.rows(place)]
        planted = noisy_rows(rows, foreign, count=config.rows, seeds=config.seeds)
        names = ", ".join(self.worker.at(place) for _, place in self.job.data)
        sources = ", ".join(config.noise)
        tables = noise_tables(self._scorer(), self.folder, planted, data=names, noise_source=sources)
        return noise(tables, list(self.job.methods))

    def _sample_tables(self) -> dict[str, Any]:
        """A token table of the samples of each task; the rows of the recipe are put side by side in the end."""
        from ranktuner.diagnostics.making import sample_table
        from ranktuner.evals.journal import read_header
        from ranktuner.evals.plan import file_name, files_of

        scorer, made = self._scorer(), {}
        for cell in self.cell.needs:
            if not isinstance(cell.job, EvalJob):
                continue
            task = str(cell.inputs["task"])
            store, _ = files_of(self.worker.cells / cell.name, task)
            form = read_header(store)["decoding"]["form"]
            prompts = self.worker.asks(cell.job).for_form(form).prompts()
            path = self.folder / f"{file_name(task)}.parquet"
            made[task] = sample_table(scorer, path, store, prompts, runs=self.job.config.runs, name=task)
        return made


class _Told:
    """Says how far a table is, now and then."""

    EVERY = 50

    def __init__(self, say: Any) -> None:
        self.say = say

    def __call__(self, name: str, rows: int, tokens: int) -> None:
        if rows % self.EVERY == 0:
            self.say(f"{name}: {rows:,} rows, {tokens:,} tokens")
