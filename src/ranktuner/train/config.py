"""What a training run is asked to do: one schema, read from TOML, flags and `--set a.b=c`. No torch here.

Each field says where its default comes from: (paper) the RankTuner paper, (DFT) the official code of Dynamic
Fine-Tuning, whose recipe the paper follows and which fills in what the paper leaves out, (ours) this library.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ranktuner.errors import InputError, nearest


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, and a field's docstring is its help."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_default=True)


class ModelConfig(Section):
    """`[model]`: what is trained."""

    path: str
    """Folder of the model, or its id on the hub."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic: bf16 computes in bfloat16 over fp32 weights; auto is bf16 on GPUs that have it, else fp32. (ours)"""
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"
    """Compute activations again in backward to save memory; auto decides by the estimate in the plan. (ours)"""
    attention: str = "auto"
    """Attention implementation of transformers; auto keeps flattened sequences apart without a mask. (ours)"""
    trust_remote_code: bool = False
    """Run code that comes with the model. (ours)"""


class LoraConfig(Section):
    """`[lora]`: train small adapters instead of all weights."""

    rank: int = Field(default=0, ge=0)
    """Rank of the adapters; 0 trains the whole model. (paper: full fine-tuning)"""
    alpha: float | None = Field(default=None, gt=0)
    """Scale of the adapters; default twice the rank. (ours)"""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout in front of the adapters; above 0 a run depends on how the batch is cut. (ours)"""
    targets: str | list[str] = "all-linear"
    """Modules to adapt: all-linear (all but the output head), or names. (ours)"""
    quantize: bool = False
    """Hold the frozen weights in 4 bits (QLoRA, nf4 with double quantization); needs a GPU. (ours)"""


class DataConfig(Section):
    """`[data]`: what is learnt from."""

    source: list[str] = Field(min_length=1)
    """Files, folders, hub ids, or one preset: gsm8k, numina-cot, evol-instruct-code, alpaca, or PRESET:FILE."""
    eval: list[str] = []
    """Held-out data of any of these kinds, for the plain nll at every evaluation. (ours)"""
    max_length: int = Field(default=2048, ge=2)
    """Tokens of a sequence; what is longer loses its end, and is counted. (paper)"""
    template: Literal["auto", "chat", "plain"] = "auto"
    """chat: the tokenizer's template; plain: `Question: .. Answer: ..`; auto: chat where there is one. (ours)"""
    prompt_suffix: str | None = None
    """Put on a line of its own after the last question; `math` stands for the step-by-step, boxed-answer one. (ours)"""
    prompt_field: str | None = None
    """Field with the prompt, where the rows have none of the known shapes. (ours)"""
    response_field: str | None = None
    """Field with the text to learn; goes with prompt_field. (ours)"""
    skip_empty: bool = False
    """Pass over rows with an empty prompt or answer, and count them; presets do. (ours)"""
    limit: int | None = Field(default=None, ge=1)
    """Read only so many rows, from the front. (ours)"""
    streaming: Literal["auto", "on", "off"] = "auto"
    """on: rows are read and encoded when their batch comes; auto: for files above 512 MiB. (ours)"""

    @field_validator("source", "eval", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class OptimizerConfig(Section):
    """`[optimizer]`: AdamW and its schedule."""

    learning_rate: float = Field(default=5e-5, gt=0)
    """Largest learning rate. (paper)"""
    epochs: float = Field(default=1.0, gt=0)
    """How often every row is seen; the last batch is filled up, so that all have the same size. (DFT)"""
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after so many optimiser steps; the schedule ends there too. (ours)"""
    schedule: Literal["cosine", "linear", "constant_with_warmup"] = "cosine"
    """How the learning rate falls after warm-up. (paper)"""
    warmup_ratio: float = Field(default=0.1, ge=0, le=1)
    """Share of the steps over which the learning rate rises. (paper)"""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay. (DFT)"""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's first moment. (DFT)"""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """AdamW's second moment. (DFT)"""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Clip the gradient at this norm, 0 for never; methods differ several-fold in size, so watch `clipped`. (DFT)"""
    normalize_weights: bool = False
    """Divide the gradient by the batch's mean weight: every method then steps as far as sft. (ours)"""


class BatchConfig(Section):
    """`[batch]`: how much goes into one optimiser step, and how it is cut."""

    size: int = Field(default=256, ge=1)
    """Sequences of one optimiser step over all processes; unless set, it shrinks on small data. (paper)"""
    micro: int | None = Field(default=None, ge=1)
    """Sequences of one forward pass of one process; unset, it is derived from lengths and memory. (ours)"""
    packing: bool = False
    """Fill each sequence up to max_length with others, attention kept apart: batches then hold other rows. (ours)"""
    min_steps: int = Field(default=50, ge=1)
    """How many steps a run on small data should have; the batch shrinks for it. (ours)"""


class CheckpointConfig(Section):
    """`[checkpoint]`: what survives."""

    every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints; default a tenth of the run, at least 10. (ours)"""
    keep: int = Field(default=2, ge=1)
    """How many checkpoints are kept. (ours)"""


class TelemetryConfig(Section):
    """`[telemetry]`: what is told, where, how often."""

    log_every: int = Field(default=1, ge=1)
    """Steps between lines of metrics.jsonl and of trackers. (ours)"""
    eval_every: int | None = Field(default=None, ge=1)
    """Steps between evaluations, where there is eval data; default: with every checkpoint, and at the end. (ours)"""
    report_to: list[str] = []
    """Trackers that transformers knows: tensorboard, wandb, trackio, ... (ours)"""

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class TrainConfig(Section):
    """Everything `ranktuner train` can be told."""

    model: ModelConfig
    data: DataConfig
    method: str | None = None
    """The token weighting, such as sft, dft, ranktuner(prior=prob); default ranktuner with the data's prior. (paper)"""
    output: str | None = None
    """Folder of the run; default runs/MODEL-DATA-METHOD. (ours)"""
    seed: int = Field(default=0, ge=0)
    """Seed of the shuffle and of new adapters. (ours)"""
    sharding: Literal["none", "accelerate", "native"] = "none"
    """none: every process holds the model (DDP); accelerate: FSDP2 under `accelerate launch`; native: FSDP2 by
    transformers under torchrun, which cannot save its optimiser. (ours)"""
    lora: LoraConfig = LoraConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @model_validator(mode="after")
    def _no_conflicts(self) -> TrainConfig:
        lora, batch = self.lora, self.batch
        if idle := sorted(lora.model_fields_set - {"rank", "quantize"}) if not lora.rank else []:
            raise ValueError(f"lora.{idle[0]} has no effect without adapters; give them a rank: --lora 16")
        if lora.quantize and not lora.rank:
            raise ValueError("lora.quantize trains adapters over 4-bit weights; give the adapters a rank: --lora 16")
        if lora.quantize and self.model.dtype == "fp32":
            raise ValueError("lora.quantize computes in bf16; set model.dtype to bf16 or auto")
        if lora.quantize and self.sharding != "none":
            raise ValueError(f"lora.quantize does not go with sharding={self.sharding}; leave one out")
        if batch.micro is not None and "size" in batch.model_fields_set and batch.size % batch.micro:
            raise ValueError(
                f"batch.size={batch.size} is no multiple of batch.micro={batch.micro}; "
                f"the nearest that fit are {', '.join(map(str, _divisors_near(batch.size, batch.micro)))}"
            )
        if (self.data.prompt_field is None) != (self.data.response_field is None):
            raise ValueError("data.prompt_field and data.response_field go together: set both or neither")
        if self.telemetry.eval_every and not self.data.eval:
            raise ValueError("telemetry.eval_every needs data to evaluate on: --eval-data FILE")
        if self.sharding == "native" and self.checkpoint.model_fields_set & {"every"}:
            raise ValueError(
                "sharding=native cannot save its optimiser, so it has no checkpoints; leave checkpoint.every out "
                "(the weights are saved at the end), or use sharding=accelerate"
            )
        return self


FLAGS: dict[str, str] = {
    "model": "model.path",
    "data": "data.source",
    "method": "method",
    "output": "output",
    "max_length": "data.max_length",
    "global_batch": "batch.size",
    "micro_batch": "batch.micro",
    "learning_rate": "optimizer.learning_rate",
    "epochs": "optimizer.epochs",
    "max_steps": "optimizer.max_steps",
    "seed": "seed",
    "dtype": "model.dtype",
    "lora": "lora.rank",
    "packing": "batch.packing",
    "eval_data": "data.eval",
    "save_every": "checkpoint.every",
    "report_to": "telemetry.report_to",
}
"""Flag of the command line -> the setting it stands for."""


def read_config(
    file: str | Path | None = None, flags: Mapping[str, Any] | None = None, sets: Iterable[str] = ()
) -> TrainConfig:
    """Return the configuration of a TOML file, flags and `a.b=c` settings; the later ones win.

    Args:
        file: a TOML file with the sections of `TrainConfig`.
        flags: by the names of `FLAGS`; None means not given.
        sets: settings as `section.key=value`, values as in TOML (a bare word is text).
    """
    tree: dict[str, Any] = read_toml(Path(file)) if file else {}
    for flag, value in (flags or {}).items():
        if value is not None:
            _put(tree, FLAGS[flag], value)
    for text in sets:
        _put(tree, *split_setting(text))
    return make_config(tree)


def split_setting(text: str) -> tuple[str, Any]:
    """Return name and value of a `section.key=value`; values as in TOML, and a bare word is text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r}: expected section.key=value, as in optimizer.weight_decay=0.1")
    return key.strip(), _toml_value(value.strip())


def make_config(tree: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a nested mapping, or the first thing that is wrong with it."""
    for path, hint in (("model.path", "--model FOLDER"), ("data.source", "--data FILE")):
        if not _get(tree, path):
            raise InputError(f"{path} is missing; give {hint}, or set it in the TOML file")
    try:
        return TrainConfig.model_validate(dict(tree))
    except ValidationError as error:
        raise InputError(explain(error.errors()[0], known_keys())) from None


def known_keys(schema: type[BaseModel] = TrainConfig, prefix: str = "") -> list[str]:
    """Return every setting by its dotted name."""
    keys: list[str] = []
    for name, field in schema.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += known_keys(inner, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


def explain(problem: Any, known: list[str]) -> str:
    """Return what is wrong with a setting, in words: pydantic's problem, and the names that there are."""
    path = ".".join(str(part) for part in problem["loc"] if not isinstance(part, int))
    if problem["type"] == "extra_forbidden":
        last = path.rsplit(".", 1)[-1]
        same = [key for key in known if key.rsplit(".", 1)[-1] == last]
        sections = sorted({key.split(".")[0] for key in known}) if last == path else []
        hint = f"did you mean {same[0]!r}?" if same else nearest(path, [*sections, *known])
        return f"unknown setting {path!r}; {hint}"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    return f"{path} is {problem['input']!r}; {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file, or an error that names what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such configuration file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML ({error}); texts need quotes, sections stand in [brackets]") from None


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        inner = tree.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"{path}: {section!r} is a value, not a section; {nearest(path, known_keys())}")
        tree = inner
    tree[key] = value


def _get(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else getattr(tree, part, None)
    return tree


def _divisors_near(size: int, micro: int) -> list[int]:
    below = size // micro * micro
    return [n for n in (below, below + micro) if n]


def changed(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted names whose values differ, as `name: before -> after`."""
    found: list[str] = []
    for key in sorted({*before, *after}):
        a, b = before.get(key), after.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += changed(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}: {json.dumps(a)} -> {json.dumps(b)}")
    return found
