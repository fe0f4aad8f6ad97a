"""The sections of a recipe: rows of methods, generated problems, evaluations, diagnostics, the grid. No torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ranktuner.train.config import Section

PROBLEMS = "problems"
"""In the place of a file or task: the recipe's generated problems."""


class MethodRow(Section):
    """One row of the table."""

    method: str
    """The token weighting, as everywhere: sft, ranktuner(prior=prob), ..."""
    label: str = ""
    """The row's name in table and figures; default the method."""
    train: dict[str, Any] = Field(default={})
    """Settings of `[train]` that are others for this row."""

    @model_validator(mode="after")
    def _named(self) -> MethodRow:
        self.__dict__["label"] = self.label or self.method
        return self


class ProblemsConfig(Section):
    """`[problems]`: arithmetic word problems with worked solutions, generated; named `problems` as data and task."""

    train: int = Field(default=128, ge=1)
    """Problems to learn from."""
    test: int = Field(default=64, ge=1)
    """Problems of the task."""
    held_out: int = Field(default=0, ge=0)
    """Problems to choose the learning rate on."""
    seed: int = Field(default=0, ge=0)
    """Of the generator; train, test and held-out problems never overlap."""
    steps: list[int] = Field(default=[2, 3], min_length=1)
    """How many steps of arithmetic a solution has; each problem draws one of these numbers."""


class EvalConfig(Section):
    """`[eval]`, or several `[[eval]]`: tasks with one way of drawing answers. What is not set is the task's own."""

    tasks: list[str] = Field(min_length=1)
    """Names (`ranktuner eval --list`), `problems`, or the path of a task's own .toml."""
    n: int | None = Field(default=None, ge=1)
    """Samples of each problem."""
    k: list[int] | None = None
    """The k of pass@k that the table shows; the first is the one that differences are taken at."""
    temperature: float | None = Field(default=None, ge=0)
    """0 is greedy."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Share of the probability that is drawn from."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Longest answer."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first problems of each task."""
    seed: int = 0
    """Each sample's own seed is derived from it."""
    data_dir: str | None = None
    """Folder with the tasks' files; without it they come from the hub."""
    prompt: Literal["auto", "chat", "plain"] = "auto"
    """auto: chat where the model has a chat template."""
    generator: Literal["transformers", "vllm"] = "transformers"
    """What draws the answers."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: as the model was saved."""
    batch: int | None = Field(default=None, ge=1)
    """Samples written at once; 64 on a CPU, 256 on a GPU."""
    grade_seconds: float | None = Field(default=None, gt=0)
    """Time limit for grading one answer; default the grader's."""
    allow_unsafe: bool = False
    """Run generated code without a sandbox, in a limited process only."""

    @field_validator("tasks", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("k", mode="before")
    @classmethod
    def _one_k(cls, value: Any) -> Any:
        return [value] if isinstance(value, int) else value

    @model_validator(mode="after")
    def _k_within_n(self) -> EvalConfig:
        if self.k is not None and (not self.k or min(self.k) < 1):
            raise ValueError(f"eval.k is {self.k}; expected numbers of at least 1")
        if self.k and self.n and max(self.k) > self.n:
            raise ValueError(f"eval.k has {max(self.k)} and eval.n is {self.n}; pass@k needs at least k samples")
        return self


class DiagnoseConfig(Section):
    """`[[diagnose]]`: one diagnostic of the token kind, see docs/diagnostics.md."""

    kind: Literal["noise", "tightness", "regimes", "tokens", "gradients", "inference-entropy", "surface"]
    """Which."""
    data: list[str] = Field(default=[])
    """Files, presets (gsm8k:FILE), hub ids or `problems`; NAME=SOURCE names a set. The last two kinds take none."""
    noise: list[str] = Field(default=[])
    """noise: data whose answers' first sentences are inserted."""
    rows: int = Field(default=200, ge=0)
    """Rows drawn from each set; 0 for all."""
    seeds: list[int] = Field(default=[0], min_length=1)
    """noise: one table each; else the first draws the rows."""
    methods: list[str] = Field(default=[])
    """Methods whose weights are looked at; default those of the recipe."""
    on: Literal["original", "all"] = "original"
    """original: the models as they were; all: each row's first seed too."""
    tasks: list[str] = Field(default=[])
    """inference-entropy: tasks whose answers are drawn and scored."""
    data_dir: str | None = None
    """inference-entropy: folder with the tasks' files."""
    runs: int = Field(default=8, ge=1)
    """inference-entropy: samples of each problem. (paper)"""
    temperature: float = Field(default=0.2, ge=0)
    """inference-entropy: of the samples; they are scored at 1. (paper)"""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """inference-entropy: longest answer; default the task's."""
    limit: int | None = Field(default=None, ge=1)
    """inference-entropy: only the first problems."""
    max_length: int = Field(default=2048, ge=2)
    """Tokens kept of a row, prompt included."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: the model's own."""

    @field_validator("data", "noise", "methods", "tasks", "seeds", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> DiagnoseConfig:
        needs = {"noise": ("data", "noise"), "inference-entropy": ("tasks",), "surface": ()}.get(self.kind, ("data",))
        for name in needs:
            if not getattr(self, name):
                raise ValueError(f"diagnose of kind {self.kind!r} needs {name}; set it in its [[diagnose]]")
        for name in ("data", "noise", "tasks"):
            if getattr(self, name) and name not in needs:
                raise ValueError(f"diagnose of kind {self.kind!r} has no use for {name}; leave it out")
        return self


class GridConfig(Section):
    """`[grid]`: every method is trained at each learning rate, and goes on with the one of the lowest held-out nll."""

    learning_rates: list[float] = Field(min_length=1)
    """Chosen from by the plain nll on held-out rows, for each model and method, with the first seed."""
    held_out: str
    """File, preset or hub id, or `problems`; rows that are also trained on are left out."""
    rows: int = Field(default=200, ge=1)
    """How many rows, drawn by seed 0."""

    @field_validator("learning_rates")
    @classmethod
    def _positive(cls, value: list[float]) -> list[float]:
        if min(value) <= 0 or len(set(value)) < len(value):
            raise ValueError(f"grid.learning_rates is {value}; expected different numbers above 0")
        return value
