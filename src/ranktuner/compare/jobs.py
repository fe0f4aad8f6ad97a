"""What a cell takes to be done, by kind: settings with the places that they are about. `work` does them. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from ranktuner.compare.parts import DiagnoseConfig, EvalConfig, ProblemsConfig
from ranktuner.compare.places import Place
from ranktuner.train.config import TrainConfig


@dataclass(frozen=True)
class ModelJob:
    """Fetch or make a model."""

    name: str
    """smollm2 or tiny."""
    seed: int = 0
    """Of a tiny one."""


@dataclass(frozen=True)
class ProblemsJob:
    """Write generated problems: training data, a task, held-out rows, foreign sentences."""

    config: ProblemsConfig


@dataclass(frozen=True)
class TaskJob:
    """Write a generated task that stands in for a public one: its name, and answers of its kind."""

    name: str
    grader: str
    count: int


@dataclass(frozen=True)
class HeldOutJob:
    """Draw rows that are not trained on."""

    held_out: Place
    train: tuple[Place, ...]
    rows: int


@dataclass(frozen=True)
class TrainJob:
    """Train; the configuration's model, data and output are filled in from the places."""

    config: TrainConfig
    model: Place
    source: tuple[Place, ...]
    held_out: tuple[Place, ...]


@dataclass(frozen=True)
class EvalJob:
    """Draw and grade the answers of one model to one task."""

    model: Place
    title: str
    """The model's name, for people."""
    task: Place
    """Of a generated task; else its name or its .toml."""
    config: EvalConfig
    n: int


@dataclass(frozen=True)
class DiagnoseJob:
    """One diagnostic of one model."""

    model: Place | None
    config: DiagnoseConfig
    methods: tuple[str, ...]
    data: tuple[tuple[str, Place], ...] = ()
    """Name of the set -> its place."""
    noise: tuple[Place, ...] = ()
    prompt_suffix: str | None = None
    """Of the recipe's trainings: tokens are looked at in the words in which they are learnt."""
