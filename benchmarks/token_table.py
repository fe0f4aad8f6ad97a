"""A token table with E[R] against the model's own forward pass with dense logits over the same rows, in one run.

Both sides take the rows one at a time and take turns, row by row, so whatever else the machine does slows both alike.
The table's side is everything a user waits for: signals, E[R], weights, text, the file.

    python benchmarks/token_table.py --data data/gsm8k/train.jsonl     # stores benchmarks/results/token_table.json
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ranktuner.data.encode import Encoder, Example
from ranktuner.data.presets import open_data
from ranktuner.data.rows import RowOptions
from ranktuner.diagnostics.collect import write_table
from ranktuner.findings import Finding, provenance
from ranktuner.pretrained import fetch_smollm2

ROOT = Path(__file__).parents[1]
LIMIT = 1.25
METHODS = ["sft", "dft", "ranktuner", "ranktuner(prior=prob)"]


def forward(model: object, example: Example) -> float:
    """Seconds of the model's own forward over one row, logits of every position."""
    ids = torch.from_numpy(example.input_ids.astype(np.int64))[None]
    start = time.perf_counter()
    with torch.inference_mode():
        model(ids, use_cache=False)  # type: ignore[operator]
    return time.perf_counter() - start


def enough(examples: Iterator[Example], tokens: int) -> list[Example]:
    """Rows from the front until they hold so many supervised tokens."""
    found: list[Example] = []
    while sum(e.supervised for e in found) < tokens:
        found.append(next(examples))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="gsm8k", help="file in GSM8K's shape (default: the preset from the hub)")
    parser.add_argument("--tokens", type=int, default=20_000, help="supervised tokens (default 20,000)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "token_table.json")
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetch_smollm2()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    source = args.data if args.data == "gsm8k" else f"gsm8k:{args.data}"
    rows = open_data([source], RowOptions(skip_empty=True))
    examples = enough(Encoder(tokenizer).encode(rows), args.tokens)
    for example in examples[:3]:
        forward(model, example)  # warms up

    dense: list[float] = []

    def by_turns() -> Iterator[Example]:
        for example in examples:
            dense.append(forward(model, example))
            yield example

    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        counts = write_table(Path(place) / "t.parquet", model, tokenizer, by_turns(), methods=METHODS)
        table = time.perf_counter() - start - sum(dense)
    ratio = table / sum(dense)
    positions = sum(map(len, examples))
    numbers = {
        "ratio": round(ratio, 3),
        "limit": LIMIT,
        "forward_seconds": round(sum(dense), 2),
        "table_seconds": round(table, 2),
        "supervised_tokens": counts["tokens"],
        "positions": positions,
        "tokens_per_second": round(counts["tokens"] / table, 1),
    }
    Finding(
        kind="benchmark",
        title="A token table with E[R], against the model's own forward with dense logits",
        n=counts["tokens"],
        numbers=numbers,
        protocol={"unit": "tokens", "dtype": "float32", "device": "cpu", "methods": METHODS, "turns": "row by row"},
        provenance=provenance(threads=torch.get_num_threads(), processors=os.cpu_count(), model=folder.name),
    ).save(args.out)
    print(
        f"forward {sum(dense):.1f} s, table {table:.1f} s over {counts['tokens']:,} tokens of {positions:,} positions"
    )
    print("held" if ratio <= LIMIT else "NOT HELD", f"- ratio {ratio:.2f}, at most {LIMIT}; stored in {args.out.name}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
