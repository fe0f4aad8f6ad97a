"""What a run says about itself in words: the plan before it, and where everything is after it."""

from __future__ import annotations

from ranktuner.train.config import TrainConfig
from ranktuner.train.folder import RunFolder
from ranktuner.train.plan import Plan


def describe(plan: Plan, config: TrainConfig) -> list[str]:
    """Return the plan for people, line by line."""
    c = plan.counts
    about = "about " if c.estimated else ""
    held = " + ".join(f"{name} {size / 2**30:.2f}" for name, size in plan.memory.items())
    share = plan.trainable / plan.parameters
    lines = [
        f"model    {plan.model}: {plan.parameters:,} parameters, {share:.1%} trained; {plan.template} template",
        f"data     {plan.data}: {about}{c.examples:,} examples, {c.tokens:,} tokens, {c.supervised:,} supervised; "
        f"{c.truncated:,} truncated, {c.dropped:,} dropped, {c.skipped:,} empty",
        f"method   {plan.method}" + (f"  ({plan.prior_note})" if plan.prior_note else ""),
        f"steps    {plan.steps:,} of {plan.size} sequences = {plan.epochs:.2f} epochs; {plan.processes} process(es) x "
        f"{plan.accumulate} micro-batches x {plan.micro}; checkpoint every {plan.save_every}",
        f"compute  {plan.device}, {'bf16 over fp32 weights' if plan.bf16 else 'fp32'}"
        + (", activations computed again in backward" if plan.checkpointing else "")
        + f"; about {sum(plan.memory.values()) / 2**30:.2f} GiB a process ({held})",
        f"output   {plan.output}",
    ]
    return lines + [f"note     {note}" for note in plan.notes]


def closing(folder: RunFolder, plan: Plan, outcome: str, step: int, config: TrainConfig) -> list[str]:
    """Return the last lines: where everything is, and what to run next."""
    if outcome == "stopped":
        return [
            f"stopped after step {step} of {plan.steps}; everything is saved in {folder.path}",
            "go on with the same command and --resume",
        ]
    kind = "adapter" if config.lora.rank else "model"
    then = (
        f"ranktuner merge {folder.path}" if config.lora.rank else f"ranktuner eval --model {folder.model} --task gsm8k"
    )
    return [
        f"done     {kind} in {folder.model}",
        f"         metrics in {folder.metrics}, configuration and versions in {folder.path / 'run.json'}",
        f"next     {then}",
        f"         ranktuner report {folder.path}",
    ]
