"""E[R] of every row against torch.sort of the same logits, in one run, and its error against the tests' oracle.

Three drawn shapes at the vocabulary of Qwen2.5, and the logits of a small real model on a paragraph. The two sides take
turns, so whatever else the machine does slows both alike; medians are compared.

    python benchmarks/expected_rank.py          # stores benchmarks/results/expected_rank.json
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from ranktuner.findings import Finding, provenance
from ranktuner.pretrained import fetch_smollm2
from ranktuner.signals import expected_rank

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import drawn  # noqa: E402  (the shapes and the oracle are those of the tests)
import oracle  # noqa: E402

VOCAB = 151_936
SHAPES = {"peaked": "peaked", "heavy tail": "heavy-tail", "flat (Gaussian, spread 2.5)": "normal"}
TEXT = """A lighthouse keeper counts the seconds between a flash and its echo on the rocks. Sound crosses about 340
metres in one second, so an echo that takes four seconds has travelled 1360 metres in all, and the cliff stands 680
metres away. On foggy nights she trusts her watch more than her eyes: "What I cannot see," she says, "I can still
count." The children of the village learn arithmetic from her, one echo at a time."""


def cases(rows: int) -> dict[str, torch.Tensor]:
    """Logits [rows, V] by name, float32 as a language model's head gives them in evaluation."""
    draw = random.Random(0)
    found = {
        name: torch.tensor([drawn.logits_of(family, VOCAB, draw) for _ in range(rows)])
        for name, family in SHAPES.items()
    }
    found["SmolLM2-135M-Instruct on a paragraph"] = real_logits()
    return found


def real_logits() -> torch.Tensor:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetch_smollm2()
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt").input_ids
    with torch.inference_mode():
        return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")(ids).logits[0].clone()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(logits_NV: torch.Tensor, repeats: int, judged_rows: int) -> dict[str, float | int]:
    """Milliseconds a row of both sides, their ratio, and the largest relative error of E[R]-1."""
    sort, ours = [], []
    for _ in range(repeats + 1):
        sort.append(timed(lambda: torch.sort(logits_NV, dim=1, descending=True)))
        ours.append(timed(lambda: expected_rank(logits_NV)))
    sort, ours = sort[1:], ours[1:]  # the first turn warms up
    got = expected_rank(logits_NV)
    errors = []
    for i in range(min(judged_rows, len(logits_NV))):
        want = oracle.expected_rank_minus_1(logits_NV[i].double().tolist())
        errors.append(abs(got[i].item() - 1 - want) / want)
    n, vocab = logits_NV.shape
    return {
        "rows": n,
        "vocabulary": vocab,
        "torch_sort_ms_per_row": round(1e3 * median(sort) / n, 3),
        "expected_rank_ms_per_row": round(1e3 * median(ours) / n, 3),
        "times_faster": round(median(sort) / median(ours), 1),
        "largest_relative_error": float(f"{max(errors):.1e}"),
        "median_expected_rank": round(got.median().item(), 2),
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16, help="rows of each drawn shape (default 16)")
    parser.add_argument("--repeats", type=int, default=7, help="timed turns of each side (default 7)")
    parser.add_argument("--judged", type=int, default=4, help="rows of each shape given to the oracle (default 4)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "expected_rank.json")
    args = parser.parse_args()
    numbers = {name: measure(logits, args.repeats, args.judged) for name, logits in cases(args.rows).items()}
    for name, result in numbers.items():
        sort, ours = result["torch_sort_ms_per_row"], result["expected_rank_ms_per_row"]
        faster, error = result["times_faster"], result["largest_relative_error"]
        print(f"{name:38} sort {sort:7.3f} ms, E[R] {ours:6.3f} ms: {faster:5.1f} times faster, error {error:.0e}")
    machine = {"processor": processor(), "threads": torch.get_num_threads(), "numpy": np.__version__}
    Finding(
        kind="benchmark",
        title="Expected rank of every row, against torch.sort of the same logits",
        n=sum(int(result["rows"]) for result in numbers.values()),
        numbers=numbers,
        protocol={
            "unit": "row",
            "repeats": args.repeats,
            "dtype": "float32",
            "device": "cpu",
            "vector_instructions": torch.backends.cpu.get_cpu_capability(),
            "expectation": "times_faster >= 5, largest_relative_error <= 1e-6",
        },
        provenance=provenance(**machine),
    ).save(args.out)
    held = all(r["times_faster"] >= 5 and r["largest_relative_error"] <= 1e-6 for r in numbers.values())
    print("held" if held else "NOT HELD", "- at least 5 times faster, E[R]-1 right to 1e-6; stored in", args.out.name)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
