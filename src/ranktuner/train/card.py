"""The model card: how a model was made, from the configuration and the last numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ranktuner.train.config import TrainConfig
from ranktuner.train.plan import Plan

SHOWN = ("loss", "nll", "weight_mean", "effective_tokens", "entropy_bits_mean", "top1", "eval_nll")


def write_card(folder: Path, config: TrainConfig, plan: Plan, last: Mapping[str, Any]) -> None:
    """Write README.md into a model folder."""
    (folder / "README.md").write_text(card(config, plan, last), encoding="utf-8")


def card(config: TrainConfig, plan: Plan, last: Mapping[str, Any]) -> str:
    """Return the card as markdown, with the header that model hubs read."""
    c, o = plan.counts, config.optimizer
    kind = f"LoRA adapter, rank {config.lora.rank}" if config.lora.rank else "all weights"
    head = ["---", "library_name: " + ("peft" if config.lora.rank else "transformers")]
    if "/" in plan.model and not Path(plan.model).exists():
        head.append(f"base_model: {plan.model}")
    head += ["tags:", "- ranktuner", "- sft", "---", ""]
    rows = [
        ("base model", Path(plan.model).name if Path(plan.model).exists() else plan.model),
        ("trained", f"{kind} ({plan.trainable:,} of {plan.parameters:,} parameters)"),
        ("method", f"`{plan.method}`"),
        ("data", f"{c.examples:,} examples, {c.supervised:,} supervised tokens, fingerprint `{plan.fingerprint}`"),
        ("template", plan.template),
        ("steps", f"{plan.steps:,} of {plan.size} sequences ({plan.epochs:.2f} epochs), seed {config.seed}"),
        (
            "optimiser",
            f"AdamW, {o.learning_rate:g}, {o.schedule}, warm-up {o.warmup_ratio:g}, decay {o.weight_decay:g}",
        ),
        ("precision", "bf16 over fp32 weights" if plan.bf16 else "fp32"),
    ]
    numbers = [f"| {name} | {last[name]:.4g} |" for name in SHOWN if name in last]
    return "\n".join(
        [
            *head,
            "# Fine-tuned with RankTuner",
            "",
            "| | |",
            "| --- | --- |",
            *(f"| {name} | {value} |" for name, value in rows),
            "",
            "Numbers of the last logged step (`nll` is the plain one; `eval_nll` is that of the held-out data):",
            "",
            "| | |",
            "| --- | --- |",
            *numbers,
            "",
        ]
    )
