"""`ranktuner train` and `ranktuner merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

BASIC, MORE, RUN = "What", "How", "The run"


def _option(help_: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=panel, **more)


@app.command()
def train(
    model: Annotated[str | None, _option("Model folder, or hub id.", BASIC)] = None,
    data: Annotated[
        list[str] | None,
        _option(
            "File, folder, hub id, or a preset (gsm8k, numina-cot, evol-instruct-code, alpaca, PRESET:FILE).", BASIC
        ),
    ] = None,
    method: Annotated[
        str | None,
        _option("Token weighting: sft, dft, 'ranktuner(prior=prob)', ... [ranktuner, prior by the data]", BASIC),
    ] = None,
    output: Annotated[str | None, _option("Folder of the run. [runs/MODEL-DATA-METHOD]", BASIC)] = None,
    eval_data: Annotated[list[str] | None, _option("Held-out data for the plain nll.", BASIC)] = None,
    max_length: Annotated[int | None, _option("Tokens of a sequence. [2048]", MORE)] = None,
    global_batch: Annotated[
        int | None, _option("Sequences of one optimiser step, over all processes. [256; fewer on small data]", MORE)
    ] = None,
    micro_batch: Annotated[int | None, _option("Sequences of one forward pass. [derived]", MORE)] = None,
    learning_rate: Annotated[float | None, _option("Largest learning rate of AdamW. [5e-5]", MORE)] = None,
    epochs: Annotated[float | None, _option("How often every row is seen. [1]", MORE)] = None,
    max_steps: Annotated[int | None, _option("Optimiser steps, in place of epochs.", MORE)] = None,
    seed: Annotated[int | None, _option("Seed of the shuffle and of adapters. [0]", MORE)] = None,
    dtype: Annotated[str | None, _option("fp32, bf16 or auto. [auto: bf16 on GPUs]", MORE)] = None,
    lora: Annotated[int | None, _option("Rank of LoRA adapters; 0 trains all weights. [0]", MORE)] = None,
    packing: Annotated[bool | None, _option("Fill sequences up to --max-length. [no]", MORE)] = None,
    save_every: Annotated[int | None, _option("Steps between checkpoints. [a tenth of the run]", RUN)] = None,
    report_to: Annotated[str | None, _option("Trackers: tensorboard, wandb, trackio (comma-separated).", RUN)] = None,
    config: Annotated[Path | None, _option("TOML file with any of the settings; flags win over it.", RUN)] = None,
    set_: Annotated[
        list[str] | None, _option("Any other setting, e.g. --set optimizer.weight_decay=0.1", RUN, "--set")
    ] = None,
    resume: Annotated[bool, _option("Go on with the run in the output folder.", RUN, "--resume")] = False,
    dry_run: Annotated[bool, _option("Print the plan and stop before weights are loaded.", RUN, "--dry-run")] = False,
    quiet: Annotated[bool, _option("Print nothing.", RUN, "--quiet")] = False,
) -> None:
    """Fine-tune a model with token weights.

    Example: ranktuner train --model ./my-model --data train.jsonl

    Without more, this is the paper's recipe: AdamW 5e-5, 256 sequences a step (fewer on small data), length 2048,
    cosine with 10% warm-up, one epoch. Every setting and where its default comes from: docs/training.md.
    """
    flags = {k: v for k, v in locals().items() if k not in ("config", "set_", "resume", "dry_run", "quiet")}
    from ranktuner.train.config import read_config
    from ranktuner.train.launch import leave
    from ranktuner.train.run import train as run

    run(read_config(config, flags, set_ or ()), resume=resume, dry_run=dry_run, quiet=quiet)
    leave()


@app.command()
def merge(
    run: Annotated[Path, typer.Argument(help="Folder of a LoRA run, or of an adapter.")],
    output: Annotated[Path | None, typer.Option(help="Where to. [merged, beside the adapter]")] = None,
    dtype: Annotated[str, typer.Option(help="fp32, bf16, fp16, or auto: the base model's.")] = "auto",
    base: Annotated[str | None, typer.Option(help="The base model, where it has moved since.")] = None,
) -> None:
    """Merge a LoRA adapter into its base model: one folder that any server loads.

    Example: ranktuner merge runs/my-run
    """
    from ranktuner.train.merge import merge as merge_adapter

    print(merge_adapter(run, output, dtype, base))
