"""Samples per second of the embedded generator against a plain loop, on the same questions in one run.

The plain loop is `model.generate(num_return_sequences=n)`, one question at a time. Both sides take turns (a question
here, as many samples there), each timed in its own turns only, so whatever else the machine does slows both alike.

    python benchmarks/generator.py                  # 32 GSM8K questions x 8 samples, SmolLM2-135M-Instruct
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ranktuner.evals.generators.hf import TransformersGenerator
from ranktuner.evals.samples import Settings, requests_for
from ranktuner.pretrained import fetch_smollm2

ROOT = Path(__file__).parents[1]
PROMPT = "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


class Side:
    """One contender: an iterator of token counts of finished samples, and the time spent inside it."""

    def __init__(self, name: str, work: Iterator[list[int]]) -> None:
        self.name, self.work = name, work
        self.wall = self.cpu = 0.0
        self.tokens: list[int] = []
        self.done = False

    def turn(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        finished = next(self.work, None)
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        self.done = finished is None
        self.tokens += finished or []

    def result(self) -> dict[str, float]:
        return {
            "samples": len(self.tokens),
            "tokens": sum(self.tokens),
            "seconds": round(self.wall, 2),
            "cpu_seconds": round(self.cpu, 2),
            "samples_per_second": round(len(self.tokens) / self.wall, 4),
            "tokens_per_second": round(sum(self.tokens) / self.wall, 2),
        }


def plain_loop(g: TransformersGenerator, requests: list[Any], n: int, settings: Settings) -> Iterator[list[int]]:
    torch.manual_seed(0)
    for first in requests[::n]:
        ids = torch.tensor([g.encode(first)])
        with torch.inference_mode():
            out = g.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=0,
                num_return_sequences=n,
                max_new_tokens=settings.max_new_tokens,
                pad_token_id=g.eos[0],
            )
        yield [_length(row, g.eos) for row in out[:, ids.shape[1] :].tolist()]


def _length(row: list[int], eos: tuple[int, ...]) -> int:
    return next((i + 1 for i, token in enumerate(row) if token in eos), len(row))


def ours(g: TransformersGenerator, requests: list[Any], settings: Settings) -> Iterator[list[int]]:
    for answer in g.generate(requests, settings):
        yield [answer.tokens]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="model folder (default: SmolLM2-135M-Instruct, fetched)")
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("-n", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "generator.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    g = TransformersGenerator.load(options.model or str(fetch_smollm2()), dtype="float32", batch=options.batch)
    data = Path(os.environ.get("RANKTUNER_DATA", ROOT.parent / "shared" / "data")) / "gsm8k" / "test.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()[: options.questions]]
    prompts = {str(i): [{"role": "user", "content": PROMPT.format(row["question"])}] for i, row in enumerate(rows)}
    settings = Settings(1.0, 1.0, options.max_new_tokens)
    requests = requests_for("gsm8k", prompts, options.n, 0, {})

    sides = [
        Side("generate_loop", plain_loop(g, requests, options.n, settings)),
        Side("ranktuner", ours(g, requests, settings)),
    ]
    load = [os.getloadavg()[0]]
    while live := [side for side in sides if not side.done]:
        min(live, key=lambda side: side.wall).turn()
    load.append(os.getloadavg()[0])
    loop, mine = (side.result() for side in sides)
    result = {
        "benchmark": "generator",
        "settings": {
            "questions": len(rows),
            "n": options.n,
            "batch": g.batch,
            **settings.to_json(),
            "dtype": "float32",
        },
        "generate_loop": loop,
        "ranktuner": mine,
        "ratio_samples_per_second": round(mine["samples_per_second"] / loop["samples_per_second"], 3),
        "ratio_cpu_seconds": round(loop["cpu_seconds"] / mine["cpu_seconds"], 3),
        "machine": {
            "cpu": _cpu_name(),
            "threads": options.threads,
            "device": str(g.model.device),
            "load_before_and_after": [round(x, 2) for x in load],
        },
        "versions": {name: version(name) for name in ("torch", "transformers")} | {"python": platform.python_version()},
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
