"""Training against TRL's SFTTrainer and a plain loop: supervised tokens per second and peak memory, in one run.

Each contender trains SmolLM2-135M-Instruct in fp32 on the same rows with the same global batch, in a process of its
own, one after another. `trl` is SFTTrainer(loss_type="nll") as it comes; `trl-same` gets our micro-batches (padded) and
no gradient checkpointing; `dense` is a plain transformers loop on these same batches; `sft` and `ranktuner` are ours.
The first step warms up and is not counted. Seconds are told twice: by the clock, and of the processor, which other work
on the machine disturbs less.

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


class Clock:
    """Seconds and supervised tokens of every step but the first."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def mark(self) -> None:
        self.marks.append((time.perf_counter(), time.process_time()))

    def result(self, tokens: list[int]) -> dict[str, float]:
        (wall, cpu), (wall_end, cpu_end) = self.marks[0], self.marks[-1]
        counted = sum(tokens[1:])
        return {
            "tokens": counted,
            "seconds": round(wall_end - wall, 2),
            "cpu_seconds": round(cpu_end - cpu, 2),
            "tokens_per_s": round(counted / (wall_end - wall), 2),
            "tokens_per_cpu_s": round(counted / (cpu_end - cpu), 2),
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def prepared(args: argparse.Namespace, method: str, output: str) -> tuple[Any, Any]:
    """The plan of our own run: every contender but `trl` takes its batches from it."""
    from ranktuner.train.config import read_config
    from ranktuner.train.plan import prepare

    flags = {"model": args.model, "data": args.source, "method": method, "output": output, "dtype": "fp32"}
    flags |= {"global_batch": args.batch, "micro_batch": args.micro}
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
            gradient_accumulation_steps=args.batch // args.micro, num_train_epochs=1, bf16=False, use_cpu=True,
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


def ratios(found: dict[str, dict[str, float]], by: str) -> dict[str, float]:
    """How many times as fast ours is; the method for ours against our own sft, our sft against the others."""
    return {
        name: round(found["ranktuner" if name == "sft" else "sft"][by] / found[name][by], 3)
        for name in LIMITS
        if name in found
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="gsm8k", help="a file in GSM8K's shape (default: the preset from the hub)")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16, help="sequences of one optimiser step (default 16)")
    parser.add_argument("--micro", type=int, default=8, help="sequences of one forward pass (default 8)")
    parser.add_argument("--model", help="model folder (default: SmolLM2-135M-Instruct from its PyPI wheel)")
    parser.add_argument("--only", nargs="*", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "train_vs_trl.json")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.source = args.data if args.data == "gsm8k" else f"gsm8k:{args.data}"
    from ranktuner.pretrained import fetch_smollm2

    args.model = args.model or str(fetch_smollm2())
    if args.contender:
        print(json.dumps(measure(args)))
        return 0
    found: dict[str, dict[str, float]] = {}
    for name in args.only:
        command = [sys.executable, __file__, "--contender", name, "--data", args.data]
        command += [f"--{key}={getattr(args, key)}" for key in ("rows", "batch", "micro", "model")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, found[name], flush=True)
    store(args, found)
    return 0


def store(args: argparse.Namespace, found: dict[str, dict[str, float]]) -> None:
    from ranktuner.findings import provenance

    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "unknown")
    result = {
        "benchmark": "train_vs_trl",
        "settings": {key: getattr(args, key) for key in ("rows", "batch", "micro")}
        | {"dtype": "fp32", "method": METHOD},
        "contenders": found,
        "times_as_fast_by_cpu": ratios(found, "tokens_per_cpu_s"),
        "times_as_fast_by_clock": ratios(found, "tokens_per_s"),
        "limits": LIMITS,
        "hardware": {
            "cpu": cpu.split(":")[-1].strip(),
            "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
            "load": [round(x, 2) for x in os.getloadavg()],
        },
        **provenance(),
    }
    result["command"] = "benchmarks/train_vs_trl.py"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: result[k] for k in ("times_as_fast_by_cpu", "times_as_fast_by_clock", "limits")}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
