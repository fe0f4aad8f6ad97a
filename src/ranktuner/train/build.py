"""From the plan to a trainer: transformers' arguments, the model, and our loop around them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ranktuner.errors import UnsupportedError
from ranktuner.train.config import TrainConfig
from ranktuner.train.folder import RunFolder
from ranktuner.train.linear import quicken
from ranktuner.train.loader import Layout
from ranktuner.train.loading import load_model, settle_attention
from ranktuner.train.plan import Plan, Prepared
from ranktuner.train.telemetry import Display, MetricsFile
from ranktuner.train.trainer import Job, Trainer


def build_arguments(config: TrainConfig, plan: Plan, folder: RunFolder) -> Any:
    """Return transformers' arguments for the plan; making them joins the processes that the launcher started."""
    from trl import SFTConfig

    o = config.optimizer
    return SFTConfig(
        output_dir=str(folder.checkpoints),
        max_steps=plan.steps,
        per_device_train_batch_size=plan.micro,
        gradient_accumulation_steps=plan.accumulate,
        learning_rate=o.learning_rate,
        lr_scheduler_type=o.schedule,
        warmup_steps=math.ceil(o.warmup_ratio * plan.steps),
        weight_decay=o.weight_decay,
        adam_beta1=o.beta1,
        adam_beta2=o.beta2,
        max_grad_norm=o.max_grad_norm,
        seed=config.seed,
        bf16=plan.bf16,
        use_cpu=plan.device == "cpu" and config.sharding != "accelerate",
        gradient_checkpointing=plan.checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if plan.checkpointing else None,
        # Logging, saving and evaluating are ours: exact sums over the batch, and folders that are whole or absent.
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=config.telemetry.report_to or "none",
        # The loader begins at the right step by itself; skipping batches would encode them for nothing.
        ignore_data_skip=True,
        remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        average_tokens_across_devices=True,
        # Every parameter gets a gradient in every step; searching for those that do not costs time.
        ddp_find_unused_parameters=False,
        save_only_model=config.sharding == "native",
    )


def build_trainer(
    config: TrainConfig,
    prepared: Prepared,
    arguments: Any,
    folder: RunFolder,
    metrics: MetricsFile | None,
    display: Display,
    stop_requested: Callable[[], bool],
) -> Trainer:
    """Load the model and return the trainer around it."""
    from transformers import PrinterCallback

    plan, tokenizer = prepared.plan, prepared.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = load_model(config, plan)
    apart = settle_attention(model, config)
    if plan.device == "cpu" and not plan.bf16 and config.sharding == "none":
        quicken(model)
    if not apart and config.model.attention != "auto":
        raise UnsupportedError(
            f"model.attention={config.model.attention} lets flattened sequences see each other; leave it at auto"
        )
    if not apart:
        plan.notes.append("this model cannot keep flattened sequences apart: batches are padded")
        display.say(f"note     {plan.notes[-1]}")
    job = Job(
        prepared=prepared,
        folder=folder,
        layout=Layout(padded=not apart, pad_id=tokenizer.pad_token_id or 0),
        stop_requested=stop_requested,
        config=config,
    )
    with _tensorboard_folder(folder):
        trainer = _trainer(job, metrics, display, model, plan, arguments, tokenizer)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _trainer(
    job: Job, metrics: MetricsFile | None, display: Display, model: Any, plan: Plan, arguments: Any, tokenizer: Any
) -> Trainer:
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # TRL wants to look at one example; the real ones come from our loader. Its fingerprint is given, since finding one
    # pickles the data, which fails beside some builds of pyarrow.
    example = Dataset(InMemoryTable.from_pydict({"input_ids": [[0]], "labels": [[-100]]}), fingerprint="example")
    return Trainer(
        job=job,
        metrics=metrics,
        display=display,
        model=model,
        method=plan.method,
        args=arguments,
        processing_class=tokenizer,
        train_dataset=example,
        data_collator=_unused_collator,
    )


@contextmanager
def _tensorboard_folder(folder: RunFolder) -> Iterator[None]:
    """Have tensorboard's files beside the metrics: its callback takes its folder from the environment alone."""
    name = "TENSORBOARD_LOGGING_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(folder.path / "tensorboard")
    try:
        yield
    finally:
        del os.environ[name]


def _unused_collator(_: Any) -> Any:
    raise AssertionError("batches come from our loader")
