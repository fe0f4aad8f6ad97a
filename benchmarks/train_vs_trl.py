"""Training against TRL's SFTTrainer and a plain loop: supervised tokens per second and peak memory, in one run.

The contenders train SmolLM2-135M-Instruct in fp32 on 256 GSM8K rows with the same global batch. `trl` is
SFTTrainer(loss_type="nll") as it comes; `trl-same` gets our micro-batches (padded) and no gradient checkpointing;
`dense` is a plain transformers loop on these same batches; `sft` and `ranktuner` are ours. They are measured in pairs:
two processes take turns, one optimiser step here and one there, so whatever slows the machine slows both; the first
step of each warms up and is not counted. Seconds are told by the clock and of the processor. A pair is stored as soon
as it is measured, and a later call of the same settings goes on with those that are missing.

    python benchmarks/train_vs_trl.py --data data/gsm8k/train.jsonl     # stores benchmarks/results/train_vs_trl.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
METHOD = "ranktuner(prior=prob)"
CONTENDERS = ("ranktuner", "sft", "dense", "trl-same", "trl")
LIMITS = {"trl": 2.2, "trl-same": 1.5, "dense": 1.4, "sft": 0.98}
"""Times as many supervised tokens per second as this contender; for `sft`, ours, the share that must be left."""
STEPS = {"trl": 3, "trl-same": 3, "dense": 3, "sft": 7}
"""Optimiser steps, the first to warm up. A question of 2 % needs more of them: over two counted steps it was 0.90."""


class Clock:
    """Seconds and supervised tokens of every step but the first, each step taken when it is this process's turn."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.turn()

    def turn(self) -> None:
        """Wait for the other to finish its step."""
        print("ready", flush=True)
        sys.stdin.readline()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def mark(self) -> None:
        self.seconds.append(time.perf_counter() - self._wall)
        self.cpu_seconds.append(time.process_time() - self._cpu)
        self.turn()

    def result(self, tokens: list[int]) -> dict[str, Any]:
        return {
            "tokens": tokens[1 : len(self.seconds)],
            "seconds": [round(x, 2) for x in self.seconds[1:]],
            "cpu_seconds": [round(x, 2) for x in self.cpu_seconds[1:]],
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def prepared(args: argparse.Namespace, method: str, output: str) -> tuple[Any, Any]:
    """The plan of our own run: every contender but `trl` takes its batches from it."""
    from ranktuner.train.config import read_config
    from ranktuner.train.plan import prepare

    flags = {"model": args.model, "data": args.source, "method": method, "output": output, "dtype": "fp32"}
    flags |= {"global_batch": args.batch, "micro_batch": args.micro, "max_steps": args.steps}
    config = read_config(flags=flags, sets=[f"data.limit={args.rows}", "checkpoint.every=1000000"])
    return config, prepare(config)


def tokens_of_steps(args: argparse.Namespace, plan: Any) -> tuple[Any, list[int]]:
    from ranktuner.train.loader import Layout, MicroBatches

    batches = MicroBatches(
        plan.examples, units=None, size=plan.plan.size, micro=plan.plan.micro, steps=plan.plan.steps, seed=0,
        processes=1, rank=0, layout=Layout(padded=True, pad_id=plan.tokenizer.pad_token_id or 0), start=lambda: 0,
    )  # fmt: skip
    counts = [sum(int((m["labels"] != -100).sum()) for m in batches.step(s)) for s in range(plan.plan.steps)]
    return batches, counts


def clock_callback(clock: Clock) -> Any:
    from transformers import TrainerCallback

    class Mark(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.mark()

    return Mark()


def ours(args: argparse.Namespace, method: str) -> dict[str, float]:
    from ranktuner.train.build import build_arguments, build_trainer
    from ranktuner.train.folder import RunFolder
    from ranktuner.train.telemetry import Display

    with tempfile.TemporaryDirectory() as output:
        config, plan = prepared(args, method, output)
        folder, clock = RunFolder(output), Clock()
        arguments = build_arguments(config, plan.plan, folder)
        trainer = build_trainer(config, plan, arguments, folder, None, Display(0, 0, None), lambda: False)
        trainer.add_callback(clock_callback(clock))
        trainer._save_checkpoint = lambda *_: None
        trainer.train()
        return clock.result(tokens_of_steps(args, plan)[1])


def trl_as_it_comes(args: argparse.Namespace) -> dict[str, float]:
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as output:
        _, plan = prepared(args, "sft", output)
        from ranktuner.data.presets import open_data
        from ranktuner.data.shapes import RowOptions

        rows = open_data([args.source], RowOptions(limit=args.rows))
        data = Dataset.from_list([{"prompt": [r.messages[0]], "completion": [r.messages[1]]} for r in rows])
        clock, tokens = Clock(), []
        arguments = trl.SFTConfig(
            output, loss_type="nll", per_device_train_batch_size=args.micro, max_length=2048, learning_rate=5e-5,
            gradient_accumulation_steps=args.batch // args.micro, max_steps=args.steps, bf16=False, use_cpu=True,
            report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip

        class Counting(trl.SFTTrainer):
            def get_batch_samples(self, *a: Any, **k: Any) -> Any:
                batches, count = super().get_batch_samples(*a, **k)
                tokens.append(int(count))
                return batches, count

        model = AutoModelForCausalLM.from_pretrained(args.model, dtype="float32")
        trainer = Counting(model, args=arguments, train_dataset=data, processing_class=plan.tokenizer)
        trainer.add_callback(clock_callback(clock))
        trainer.train()
        return clock.result(tokens)


def trl_same(args: argparse.Namespace) -> dict[str, float]:
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as output:
        _, plan = prepared(args, "sft", output)
        batches, counts = tokens_of_steps(args, plan)
        clock = Clock()
        arguments = trl.SFTConfig(
            output, loss_type="nll", per_device_train_batch_size=args.micro, max_steps=plan.plan.steps,
            gradient_accumulation_steps=plan.plan.accumulate, bf16=False, use_cpu=True, gradient_checkpointing=False,
            report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, learning_rate=5e-5,
            dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False,
        )  # fmt: skip

        class Same(trl.SFTTrainer):
            def get_train_dataloader(self) -> Any:
                return batches

            def get_batch_samples(self, *a: Any, **k: Any) -> Any:
                found, count = super().get_batch_samples(*a, **k)
                for batch in found:
                    batch.pop("row_ids")
                return found, count

        model = AutoModelForCausalLM.from_pretrained(args.model, dtype="float32")
        one = Dataset.from_list([{"input_ids": [0], "labels": [-100]}])
        trainer = Same(
            model, args=arguments, train_dataset=one, processing_class=plan.tokenizer, data_collator=lambda x: x
        )
        trainer.add_callback(clock_callback(clock))
        trainer.train()
        return clock.result(counts)


def dense(args: argparse.Namespace) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as output:
        _, plan = prepared(args, "sft", output)
    batches, counts = tokens_of_steps(args, plan)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype="float32").train()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    clock = Clock()
    for step, count in enumerate(counts):
        for micro in batches.step(step):
            micro.pop("row_ids")
            model(**micro, num_items_in_batch=count, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.mark()
    return clock.result(counts)


def measure(args: argparse.Namespace) -> dict[str, float]:
    return {
        "ranktuner": lambda: ours(args, METHOD),
        "sft": lambda: ours(args, "sft"),
        "dense": lambda: dense(args),
        "trl-same": lambda: trl_same(args),
        "trl": lambda: trl_as_it_comes(args),
    }[args.contender]()


def pair(args: argparse.Namespace, mine: str, other: str) -> dict[str, Any]:
    """Measure two contenders in turns; which of them comes first changes with every step."""
    command = [sys.executable, __file__, "--data", args.data]
    steps = args.steps or STEPS[other]
    command += [f"--{key}={getattr(args, key)}" for key in ("rows", "batch", "micro", "model")] + [f"--steps={steps}"]
    two = [
        subprocess.Popen([*command, "--contender", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in (mine, other)
    ]
    for process in two:
        hear(process, "ready")
    for step in range(steps):
        for process in two if step % 2 == 0 else two[::-1]:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            hear(process, "ready")
    measured = [json.loads(hear(process, '{"tokens"', go=True)) for process in two]
    for process in two:
        process.wait()
    return {
        "contenders": [mine, other],
        "measured": measured,
        **ratios(*measured),
        "load": round(os.getloadavg()[0], 2),
    }


def hear(process: subprocess.Popen[str], word: str, go: bool = False) -> str:
    """Read a process's output up to a line that begins with `word`; `go` first ends its last turn."""
    assert process.stdout is not None
    if go:
        assert process.stdin is not None
        process.stdin.close()
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise SystemExit(f"a contender ended before it said {word!r} (exit status {process.wait()})")


def ratios(mine: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """How many times as many supervised tokens per second the first of the two trains, in all and step by step."""
    found: dict[str, Any] = {}
    for name, key in (("clock", "seconds"), ("cpu", "cpu_seconds")):
        speed = [sum(m["tokens"]) / sum(m[key]) for m in (mine, other)]
        steps = [[t / s for t, s in zip(m["tokens"], m[key], strict=True)] for m in (mine, other)]
        found[f"times_as_fast_by_{name}"] = round(speed[0] / speed[1], 3)
        found[f"of_each_step_by_{name}"] = [round(a / b, 3) for a, b in zip(*steps, strict=True)]
    return {**found, "share_of_peak_memory": round(mine["peak_mib"] / other["peak_mib"], 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="gsm8k", help="a file in GSM8K's shape (default: the preset from the hub)")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16, help="sequences of one optimiser step (default 16)")
    parser.add_argument("--micro", type=int, default=8, help="sequences of one forward pass (default 8)")
    parser.add_argument("--steps", type=int, help=f"optimiser steps, the first to warm up (default: {STEPS})")
    parser.add_argument("--model", help="model folder (default: SmolLM2-135M-Instruct from its PyPI wheel)")
    parser.add_argument("--only", nargs="*", default=list(LIMITS), choices=LIMITS, help="measure against these alone")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "train_vs_trl.json")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.source = args.data if args.data == "gsm8k" else f"gsm8k:{args.data}"
    from ranktuner.pretrained import fetch_smollm2

    args.model = args.model or str(fetch_smollm2())
    if args.contender:
        print(json.dumps(measure(args)))
        return 0
    head = frame(args)
    pairs = stored(args.out, head)
    for other in args.only:
        if other not in pairs:
            pairs[other] = {"at_least": LIMITS[other], **pair(args, "ranktuner" if other == "sft" else "sft", other)}
            print(other, json.dumps(pairs[other]), flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps({**head, "against": pairs}, indent=1) + "\n")
    return 0


def frame(args: argparse.Namespace) -> dict[str, Any]:
    """What was measured, and on what: results are put together only where all of it agrees."""
    from ranktuner.findings import provenance

    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "unknown")
    return {
        "benchmark": "train_vs_trl",
        "settings": {
            **{key: getattr(args, key) for key in ("rows", "batch", "micro")},
            "steps": {name: args.steps or steps for name, steps in STEPS.items()},
            "model": "SmolLM2-135M-Instruct",
            "dtype": "fp32",
            "method": METHOD,
        },
        "hardware": {
            "cpu": cpu.split(":")[-1].strip(),
            "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        },
        **{key: value for key, value in provenance().items() if key != "command"},
    }


def stored(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """What an earlier call of the same settings, machine and versions has measured."""
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == head[key] for key in ("settings", "hardware", "versions"))
    return dict(before["against"]) if same else {}


if __name__ == "__main__":
    sys.exit(main())
