"""The plan: everything that is decided before weights are loaded, and printed by `--dry-run`."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ranktuner.data.encode import Encoder
from ranktuner.data.examples import Counts, Examples, Held, open_examples, pack
from ranktuner.data.presets import open_data, prior_for, split_source
from ranktuner.data.shapes import RowOptions
from ranktuner.errors import InputError, UnsupportedError, nearest
from ranktuner.registry import method
from ranktuner.spec import parse
from ranktuner.train import memory, sizes
from ranktuner.train.config import DataConfig, TrainConfig


@dataclass(frozen=True)
class World:
    """How many processes there are and which one this is, as the launcher says."""

    processes: int = 1
    rank: int = 0

    @staticmethod
    def from_environment() -> World:
        """Read what torchrun and accelerate set."""
        return World(int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)))


@dataclass
class Plan:
    """What the run will do."""

    model: str
    data: str
    output: str
    method: str
    prior_note: str
    template: str
    fingerprint: str
    eval_fingerprint: str | None
    counts: Counts
    eval_counts: Counts | None
    sequences: int
    """Units that are shuffled: rows, or packed bins."""
    size: int
    micro: int
    accumulate: int
    processes: int
    steps: int
    epochs: float
    save_every: int
    device: str
    bf16: bool
    checkpointing: bool
    parameters: int
    trainable: int
    memory: dict[str, int]
    free_memory: int | None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self)


@dataclass
class Prepared:
    """The plan with what was opened to make it."""

    plan: Plan
    tokenizer: Any
    examples: Examples
    units: list[list[int]] | None
    """Places in `examples` that make up each unit of the shuffle; None: each is its own."""
    eval_examples: Examples | None


def prepare(config: TrainConfig, world: World | None = None) -> Prepared:
    """Read tokenizer, model configuration and data, and decide everything else.

    Args:
        config: what was asked for.
        world: the processes; default as the launcher set them.

    Returns:
        The plan, and the encoded data behind it.
    """
    world = world or World.from_environment()
    chosen, prior_note = choose_method(config)
    check_trackers(config.telemetry.report_to)
    tokenizer, model_config = load_tokenizer(config), load_model_config(config)
    encoder = make_encoder(config.data, tokenizer)
    rows = open_data(config.data.source, row_options(config.data))
    examples = open_examples(rows, encoder, config.data.streaming)
    held_out = None
    eval_rows = None
    if config.data.eval:
        eval_rows = open_data(config.data.eval, replace(row_options(config.data), limit=None))
        held_out = open_examples(eval_rows, encoder, "off")
    units = _units(config, examples)
    lengths = examples.lengths()
    if units is not None:
        lengths = [sum(lengths[i] for i in unit) for unit in units]
    n = len(units) if units is not None else len(examples)
    o, b = config.optimizer, config.batch
    explicit = "size" in b.model_fields_set
    size, note = sizes.batch_size(n, o.epochs, b.size, explicit, b.min_steps, world.processes)
    steps = sizes.step_count(n, o.epochs, size, o.max_steps)
    device, bf16 = choose_device(config)
    shape = memory.model_shape(model_config, config.lora.rank)
    shards = world.processes if config.sharding != "none" else 1
    free = memory.available(device)
    storage = memory.Storage(bf16, config.lora.quantize, shards)
    checkpointing = _checkpointing(config, shape, free, max(lengths), storage)
    budget = memory.token_budget(shape, free, storage, checkpointing)
    micro = sizes.micro_size(size, world.processes, b.micro, lengths, budget)
    held = memory.estimate(shape, micro * max(lengths), storage, checkpointing)
    plan = Plan(
        model=config.model.path,
        data=", ".join(config.data.source),
        output=config.output or default_output(config, chosen),
        method=chosen,
        prior_note=prior_note,
        template=encoder.template,
        fingerprint=rows.fingerprint,
        eval_fingerprint=eval_rows.fingerprint if eval_rows else None,
        counts=examples.counts,
        eval_counts=held_out.counts if held_out else None,
        sequences=n,
        size=size,
        micro=micro,
        accumulate=size // world.processes // micro,
        processes=world.processes,
        steps=steps,
        epochs=steps * size / n,
        save_every=sizes.save_interval(steps, config.checkpoint.every),
        device=str(device),
        bf16=bf16,
        checkpointing=checkpointing,
        parameters=shape.parameters,
        trainable=shape.trainable,
        memory={"weights": held.weights, "optimizer": held.optimizer, "activations": held.activations},
        free_memory=free,
        notes=[f"global batch {note}"] if note else [],
    )
    _remark(plan, config, model_config)
    return Prepared(plan, tokenizer, examples, units, held_out)


def choose_method(config: TrainConfig) -> tuple[str, str]:
    """Return the method's full spec and where its prior comes from; a bad spec is refused here."""
    prior, why = prior_for(config.data.source)
    text = config.method or "ranktuner"
    name, given = parse(text)
    if name == "ranktuner" and "prior" not in given:
        inside = ", ".join(f"{k}={v}" for k, v in {"prior": prior, **given}.items())
        method(f"ranktuner({inside})")
        return f"ranktuner({inside})", f"prior={prior}: {why}"
    if method(text).parameters.get("mode") == "mix":
        raise UnsupportedError(f"{text}: the mixed target needs all logits, which training never keeps; use mode=gate")
    return text, ""


def check_trackers(names: list[str]) -> None:
    """Refuse trackers that transformers does not know or that are not installed."""
    if not names:
        return
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise InputError(f"--report-to {name}: no such tracker; {nearest(name, INTEGRATION_TO_CALLBACK)}")
        if name not in get_available_reporting_integrations():
            raise InputError(f"--report-to {name}: the package is not installed: pip install {name}")


def load_tokenizer(config: TrainConfig) -> Any:
    """Return the model's tokenizer."""
    from transformers import AutoTokenizer

    _check_path(config.model.path)
    try:
        return AutoTokenizer.from_pretrained(config.model.path, trust_remote_code=config.model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise InputError(f"model {config.model.path}: its tokenizer cannot be loaded ({_first(error)})") from error


def load_model_config(config: TrainConfig) -> Any:
    """Return the model's configuration."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(config.model.path, trust_remote_code=config.model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise InputError(f"model {config.model.path}: its config.json cannot be read ({_first(error)})") from error


def make_encoder(data: DataConfig, tokenizer: Any) -> Encoder:
    """Return the encoder that the data section asks for."""
    return Encoder(tokenizer, data.max_length, data.template, data.prompt_suffix)


def row_options(data: DataConfig) -> RowOptions:
    """Return how rows are read."""
    return RowOptions(data.prompt_field, data.response_field, data.skip_empty, data.limit)


def choose_device(config: TrainConfig) -> tuple[torch.device, bool]:
    """Return the device and whether it computes in bf16."""
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if config.model.dtype != "auto":
        return device, config.model.dtype == "bf16"
    return device, device.type == "cuda" and torch.cuda.is_bf16_supported()


def default_output(config: TrainConfig, chosen: str) -> str:
    """Return runs/MODEL-DATA-METHOD, in letters that every file system takes."""
    source = split_source(config.data.source[0])
    data = source[0] or Path(source[1]).name.split(".")[0]
    name = f"{Path(config.model.path).name}-{data}-{chosen}"
    return str(Path("runs") / re.sub(r"[^\w.+-]+", "-", name).strip("-"))


def _units(config: TrainConfig, examples: Examples) -> list[list[int]] | None:
    if not config.batch.packing:
        return None
    if not isinstance(examples, Held):
        raise InputError("packing needs all lengths beforehand and these data are streamed; drop --packing")
    return pack(examples.lengths(), config.data.max_length)


def _checkpointing(
    config: TrainConfig, shape: memory.Shape, free: int | None, longest: int, storage: memory.Storage
) -> bool:
    asked = config.model.gradient_checkpointing
    if asked != "auto":
        return asked == "on"
    return free is not None and memory.estimate(shape, longest, storage, False).total > 0.6 * free


def _remark(plan: Plan, config: TrainConfig, model_config: Any) -> None:
    """Add what the user should know before the run."""
    c, note = plan.counts, plan.notes.append
    if c.truncated:
        note(f"{c.truncated:,} sequences are cut at {config.data.max_length} tokens (--max-length)")
    if c.dropped:
        first = ", ".join(c.dropped_ids)
        note(f"{c.dropped:,} rows keep no supervised token and are left out (first: {first})")
    if c.skipped:
        note(f"{c.skipped:,} empty rows are passed over")
    if not config.data.prompt_suffix and prior_for(config.data.source)[0] == "prob":  # mathematics
        note("`ranktuner eval` ends its questions with words that these lack: --set data.prompt_suffix=math adds them")
    limit = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if limit and c.longest > limit:
        note(f"the longest sequence has {c.longest} tokens, the model was made for {limit}: set --max-length {limit}")
    if plan.free_memory is not None and sum(plan.memory.values()) > plan.free_memory:
        note("this may not fit in GPU memory: set --lora 16, shorter --max-length, or more GPUs with sharding")
    o = config.optimizer
    if o.max_steps is not None and "epochs" in o.model_fields_set:
        note(f"max_steps={o.max_steps} ends the run after {plan.epochs:.2f} epochs, whatever epochs={o.epochs:g} says")
    if config.lora.dropout:
        note("lora.dropout above 0: results depend on how the batch is cut")
    if plan.processes > 1 and plan.device == "cpu":
        note("several processes on a CPU: for tests")


def _check_path(path: str) -> None:
    folder = Path(path).expanduser()
    if folder.is_dir() and not (folder / "config.json").exists():
        adapter = (folder / "adapter_config.json").exists()
        hint = "it is an adapter: `ranktuner merge` makes a model of it" if adapter else "expected a model folder"
        raise InputError(f"model {path}: no config.json in this folder; {hint}")
    if not folder.exists() and (path.startswith((".", "/", "~")) or path.count("/") != 1):
        raise InputError(f"model {path}: there is no such folder; give a model folder, or a hub id such as owner/name")


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
