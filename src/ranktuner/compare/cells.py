"""From a recipe to its cells: every model, training, evaluation and diagnostic, each with a key of its content.

The same cell in two recipes has the same key, so it is done once. Nothing is loaded here: keys come from settings, the
content of local files, and the names of what lies on a hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ranktuner.compare.jobs import DiagnoseJob, EvalJob, HeldOutJob, ModelJob, ProblemsJob, TaskJob, TrainJob
from ranktuner.compare.paper import read_paper
from ranktuner.compare.parts import PROBLEMS, DiagnoseConfig, EvalConfig, MethodRow
from ranktuner.compare.places import Cell, Place, content_of, data_place, model_place
from ranktuner.compare.recipe import ORIGINAL, Recipe
from ranktuner.compare.scale import FULL, SCALES
from ranktuner.compare.store import Store
from ranktuner.errors import DataError, InputError, nearest
from ranktuner.evals.tasks import Task, task
from ranktuner.pretrained import SHA256
from ranktuner.train.config import TrainConfig

MODEL, RUN_MODEL = "model", "run/model"
"""Where a model lies in the cell that made or trained it."""
NOT_A_RESULT = ("output", "telemetry", "checkpoint", "seed")
"""Settings of a training that its result does not depend on; the seed stands for itself."""


@dataclass(frozen=True)
class Entry:
    """Where a cell stands in the comparison: a cell may stand in several places."""

    stage: str
    """prepare, grid, train, eval, entropy (samples for inference entropy) or diagnose."""
    model: str
    label: str
    seed: int | None
    name: str
    """The task, the diagnostic, the learning rate, ..."""
    cell: Cell | None
    """None: not known before the grid has chosen."""
    at: int = 0
    """Which [[eval]] or [[diagnose]]."""


@dataclass(frozen=True)
class Subject:
    """A model that is measured."""

    model: str
    label: str
    seed: int | None
    place: Place | None


class Cells:
    """The cells of a recipe.

    Args:
        recipe: as read, at its scale.
        store: says which cells are done, and so what a grid has chosen.
        only: labels of the rows to look at; empty: all.
    """

    def __init__(self, recipe: Recipe, store: Store, only: tuple[str, ...] = ()) -> None:
        labels = [ORIGINAL, *(row.label for row in recipe.methods)]
        for label in only:
            if label not in labels:
                raise InputError(f"--only {label}: no such row in the recipe {recipe.name}; {nearest(label, labels)}")
        self.recipe, self.store = recipe, store
        self.rows = [row for row in recipe.methods if not only or row.label in only]
        self.scale = SCALES[recipe.scale] if recipe.scale != FULL else None

    def check(self) -> None:
        """Refuse what cannot work before anything runs: methods, models, tasks, data."""
        from ranktuner.registry import method
        from ranktuner.train.plan import choose_method

        for row in self.recipe.methods:
            choose_method(self.recipe.train_config("MODEL", row))
        for one in self.recipe.diagnose:
            for spec in self._methods_of(one):
                method(spec)
        for section in self.recipe.eval:
            for name in section.tasks:
                n = self.samples(section, name)
                if section.k and max(section.k) > n:
                    raise InputError(
                        f"eval.k has {max(section.k)} and {self.task(name)[2]} has n = {n} samples a problem; "
                        "pass@k needs at least k: set eval.n"
                    )
        if file := self.recipe.paper_file():
            read_paper(file)
        list(self.entries())

    def entries(self) -> Iterator[Entry]:
        """Yield every place of the comparison, in the order of doing it."""
        for model in self.recipe.models:
            place = self.model(model)
            if place.cell:
                yield Entry("prepare", model, ORIGINAL, None, place.cell.job.name, place.cell)
            yield from self._data_cells(model)
            yield from self._measured(Subject(model, ORIGINAL, None, place))
            for row in self.rows:
                yield from self._candidates(model, row)
                for seed in self.recipe.seeds:
                    config = self.config(model, row, seed)
                    cell = self.train(model, config) if config else None
                    yield Entry("train", model, row.label, seed, row.method, cell)
                    trained = Place(RUN_MODEL, cell) if cell else None
                    yield from self._measured(Subject(model, row.label, seed, trained))
        for at, one in enumerate(self.recipe.diagnose):
            if one.kind == "surface":
                cell = Cell("diagnose", {"kind": "surface"}, DiagnoseJob(None, one, ()))
                yield Entry("diagnose", "", "", None, "surface", cell, at)

    # --- what is given --------------------------------------------------------------------------------------------

    def model(self, name: str) -> Place:
        """Return the place of one of the recipe's models."""
        made = self.scale.model if self.scale else name
        seed = self.recipe.models.index(name) if self.scale else 0
        if made == "smollm2":
            return Place(MODEL, Cell("model", {"model": made, "sha256": SHA256}, ModelJob(made)))
        if made == "tiny":
            return Place(MODEL, Cell("model", {"model": made, "seed": seed}, ModelJob(made, seed)))
        return model_place(name)

    @cached_property
    def problems(self) -> Cell:
        """The recipe's generated problems."""
        assert self.recipe.problems is not None
        return Cell("problems", self.recipe.problems.model_dump(), ProblemsJob(self.recipe.problems))

    def data(self, source: str, use: str) -> Place:
        """Return the place of data: the recipe's generated ones where they are named, and at every smaller scale.

        Args:
            source: as the recipe names it.
            use: train, test, held_out or foreign, for generated problems.
        """
        if source != PROBLEMS and not self.scale:
            return data_place(source)
        config = self.recipe.problems
        assert config is not None
        if use == "held_out" and not config.held_out:
            raise InputError("held-out problems are asked for and problems.held_out is 0; set how many there shall be")
        return Place(f"{use}.jsonl", self.problems)

    def task(self, name: str) -> tuple[Place, Task | None, str]:
        """Return a task's place (its path is what `ranktuner eval` takes), the task, and its name in tables."""
        if self.scale:
            public = None if name == PROBLEMS else task(name)
            title = public.name if public else PROBLEMS
            grader, count = public.grader if public else "math", self.scale.task_problems
            inputs = {"task": title, "grader": grader, "count": count}
            job = TaskJob(title, grader, count)
            return Place("task.toml", Cell("task", inputs, job)), public, title
        if name == PROBLEMS:
            return Place("problems.toml", self.problems), None, PROBLEMS
        found = task(name)
        return Place(name, identity=found.name), found, found.name

    def grader(self, name: str) -> str:
        """Return the name of a task's grader."""
        public = self.task(name)[1]
        return public.grader if public else "math"

    def samples(self, section: EvalConfig, name: str) -> int:
        """Return how many samples of each problem an evaluation draws."""
        public = self.task(name)[1]
        # Generated tasks are written with n = 8.
        return section.n or (public.n if public else 8)

    def _data_cells(self, model: str) -> Iterator[Entry]:
        if model == self.recipe.models[0]:
            cells: dict[str, Cell] = {}
            if self.scale or self.recipe.uses_problems():
                cells[self.problems.key] = self.problems
            measured = [name for one in self.recipe.eval for name in one.tasks]
            measured += [name for one in self.recipe.diagnose for name in one.tasks]
            for name in measured:
                if (place := self.task(name)[0]).cell:
                    cells[place.cell.key] = place.cell
            if self.recipe.grid and self.rows:
                held = self.held_out(self.rows[0]).cell
                assert held is not None
                cells[held.key] = held
            for cell in cells.values():
                yield Entry("prepare", "", "", None, cell.job.name if cell.kind == "task" else cell.kind, cell)

    # --- training -------------------------------------------------------------------------------------------------

    def config(self, model: str, row: MethodRow, seed: int) -> TrainConfig | None:
        """Return the settings of one training; None while its grid has not chosen."""
        config = self.recipe.train_config(model, row, seed)
        if not self.recipe.grid:
            return config
        rate = self.chosen(model, row)
        if rate is None:
            return None
        made = _with_rate(config, rate)
        # With the first seed the chosen candidate is the training itself.
        return self.candidate(model, row, rate) if seed == self.recipe.seeds[0] else made

    def train(self, model: str, config: TrainConfig) -> Cell:
        """Return the cell of one training."""
        from ranktuner.train.plan import choose_method

        place = self.model(model)
        source = tuple(self.data(one, "train") for one in config.data.source)
        held = tuple(self._held_place(one, config) for one in config.data.eval)
        tree = {k: v for k, v in config.model_dump(mode="json").items() if k not in NOT_A_RESULT}
        tree["model"] = {"dtype": config.model.dtype}
        tree["data"] |= {"source": [one.facts for one in source], "eval": [one.facts for one in held]}
        tree["batch"] |= {"micro": None, "as_said": "size" in config.batch.model_fields_set}
        tree |= {"method": _canonical(choose_method(config)[0]), "seed": config.seed, "of": place.facts}
        needs = tuple(dict.fromkeys(one.cell for one in (place, *source, *held) if one.cell))
        return Cell("train", tree, TrainJob(config, place, source, held), needs)

    def _held_place(self, source: str, config: TrainConfig) -> Place:
        if source == HELD:
            return self._held_out_of(config)
        few = self.recipe.problems is not None and not self.recipe.problems.held_out
        return self.data(source, "test" if few else "held_out")

    def held_out(self, row: MethodRow) -> Place:
        """Return the rows that a row's learning rate is chosen on."""
        return self._held_out_of(self.recipe.train_config("MODEL", row))

    def _held_out_of(self, config: TrainConfig) -> Place:
        grid = self.recipe.grid
        assert grid is not None
        held = self.data(grid.held_out, "held_out")
        train = tuple(self.data(one, "train") for one in config.data.source)
        inputs = {"held_out": held.facts, "train": [one.facts for one in train], "rows": grid.rows}
        needs = tuple(dict.fromkeys(one.cell for one in (held, *train) if one.cell))
        return Place("held_out.jsonl", Cell("held-out", inputs, HeldOutJob(held, train, grid.rows), needs))

    def candidate(self, model: str, row: MethodRow, rate: float) -> TrainConfig:
        """Return the settings of a candidate of the grid: the first seed, with held-out rows."""
        config = _with_rate(self.recipe.train_config(model, row, self.recipe.seeds[0]), rate)
        return config.model_copy(update={"data": config.data.model_copy(update={"eval": [HELD]})})

    def _candidates(self, model: str, row: MethodRow) -> Iterator[Entry]:
        if self.recipe.grid:
            for rate in self.recipe.grid.learning_rates:
                cell = self.train(model, self.candidate(model, row, rate))
                yield Entry("grid", model, row.label, self.recipe.seeds[0], f"{rate:g}", cell)

    def chosen(self, model: str, row: MethodRow) -> float | None:
        """Return the learning rate of the lowest held-out nll; None while a candidate is missing or failed.

        A training that diverged has lost; where all diverged, none is chosen.
        """
        found = self.tried(model, row)
        if any(one is None for one in found.values()):
            return None
        scores = {rate: nll for rate, nll in found.items() if isinstance(nll, float)}
        return min(scores, key=lambda rate: (scores[rate], rate), default=None)

    def tried(self, model: str, row: MethodRow) -> dict[float, float | str | None]:
        """Return learning rate -> held-out nll of its candidate, `diverged`, or None where there is nothing yet."""
        assert self.recipe.grid is not None
        found: dict[float, float | str | None] = {}
        for rate in self.recipe.grid.learning_rates:
            cell = self.train(model, self.candidate(model, row, rate))
            done, failed = self.store.done(cell), self.store.failed(cell)
            found[rate] = done["eval_nll"] if done else "diverged" if failed and failed.get("diverged") else None
        return found

    def diverged(self) -> Iterator[tuple[str, MethodRow]]:
        """Yield the models and rows whose every learning rate diverged: there is nothing to go on with."""
        if self.recipe.grid:
            for model in self.recipe.models:
                for row in self.rows:
                    if set(self.tried(model, row).values()) == {"diverged"}:
                        yield model, row

    # --- measuring ------------------------------------------------------------------------------------------------

    def _measured(self, subject: Subject) -> Iterator[Entry]:
        """Yield the evaluations and diagnostics of one model."""
        place = subject.place
        for at, section in enumerate(self.recipe.eval):
            for name in section.tasks:
                title = self.task(name)[2]
                cell = self.evaluation(place, subject, name, section) if place else None
                yield Entry("eval", subject.model, subject.label, subject.seed, title, cell, at)
        for at, one in enumerate(self.recipe.diagnose):
            of_original = subject.label == ORIGINAL
            of_first = one.on == "all" and subject.seed == self.recipe.seeds[0]
            if one.kind == "surface" or not (of_original or of_first):
                continue
            where = (subject.model, subject.label, subject.seed)
            for name in one.tasks:
                cell = self.evaluation(place, subject, name, _drawing(one, name)) if place else None
                yield Entry("entropy", *where, self.task(name)[2], cell, at)
            yield Entry("diagnose", *where, one.kind, self.diagnosis(place, subject, one) if place else None, at)

    def evaluation(self, place: Place, subject: Subject, name: str, section: EvalConfig) -> Cell:
        """Return the cell of one evaluation."""
        where, public, title = self.task(name)
        drawn = public.decoding if public else None
        n = self.samples(section, name)
        # Generated tasks are written with temperature 1 and 160 new tokens.
        facts = {
            "model": place.facts,
            "task": title,
            "problems": where.facts if where.cell else _problems_of(where.path, public, section.data_dir),
            "n": n,
            "temperature": _first(section.temperature, drawn and drawn.temperature, 1.0),
            "top_p": _first(section.top_p, drawn and drawn.top_p, 1.0),
            "max_new_tokens": _first(section.max_new_tokens, drawn and drawn.max_new_tokens, 160),
            **section.model_dump(include={"limit", "seed", "prompt", "generator", "dtype", "grade_seconds"}),
        }
        shown = subject.model if subject.label == ORIGINAL else f"{subject.model}, {subject.label}"
        config = section.model_copy(update={"tasks": [name], "k": None})
        needs = tuple(one.cell for one in (place, where) if one.cell)
        return Cell("eval", facts, EvalJob(place, shown, where, config, n), needs)

    def diagnosis(self, place: Place, subject: Subject, one: DiagnoseConfig) -> Cell:
        """Return the cell of one diagnostic."""
        from ranktuner.cli.sources import named

        if one.kind == "inference-entropy":
            samples = tuple(self.evaluation(place, subject, name, _drawing(one, name)) for name in one.tasks)
            facts = {
                "kind": one.kind,
                "runs": one.runs,
                "dtype": one.dtype,
                "tasks": [s.inputs["task"] for s in samples],
            }
            return Cell(
                "diagnose", facts, DiagnoseJob(place, one, ()), (*([place.cell] if place.cell else []), *samples)
            )
        methods = self._methods_of(one) if one.kind != "tightness" else ()
        suffix = self.recipe.train.get("data", {}).get("prompt_suffix")
        data = tuple((name, self.data(source, "train")) for name, source in named(one.data).items())
        noise = tuple(self.data(source, "foreign") for source in one.noise)
        facts = {
            "model": place.facts,
            "methods": [_canonical(spec) for spec in methods],
            "data": [[name, where.facts] for name, where in data],
            "noise": [where.facts for where in noise],
            **one.model_dump(include={"kind", "rows", "seeds", "max_length", "dtype"}),
            **({"prompt_suffix": suffix} if suffix else {}),
        }
        needs = tuple(dict.fromkeys(w.cell for w in (place, *(w for _, w in data), *noise) if w.cell))
        return Cell("diagnose", facts, DiagnoseJob(place, one, methods, data, noise, suffix), needs)

    def _methods_of(self, one: DiagnoseConfig) -> tuple[str, ...]:
        return tuple(one.methods or [row.method for row in self.recipe.methods] or ["sft", "ranktuner(prior=prob)"])


HELD = "held-out rows of the grid"
"""In the place of a file: what `HeldOutJob` writes."""


def _with_rate(config: TrainConfig, rate: float) -> TrainConfig:
    return config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"learning_rate": rate})})


def _drawing(one: DiagnoseConfig, name: str) -> EvalConfig:
    """How inference entropy draws its samples."""
    settings = one.model_dump(include={"temperature", "max_new_tokens", "limit", "data_dir", "dtype"})
    return EvalConfig(tasks=[name], n=one.runs, **settings)


def _canonical(spec: str) -> list[Any]:
    """Return a method as its name and all its parameters, however it was written."""
    from ranktuner.registry import method

    made = method(spec)
    return [made.name, {key: str(value) for key, value in sorted(made.parameters.items())}]


def _problems_of(source: str, public: Task | None, data_dir: str | None) -> str:
    """Return what tells a task's problems from others: the content of local files, or the hub's name."""
    assert public is not None
    own = source.endswith(".toml")
    folder = public.data_folder(data_dir or None)
    about = f"{content_of(Path(source))} " if own else ""
    if folder is None:
        return f"{about}hub:{public.source.hub}"
    found = next((folder / name for name in public.source.files if (folder / name).is_file()), None)
    if found is None:
        raise DataError(
            f"task {public.name}: {folder} holds none of {', '.join(public.source.files)}; get it: {public.source.get}"
        )
    return about + content_of(found)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
