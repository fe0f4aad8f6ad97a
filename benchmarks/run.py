"""Every benchmark, one after another; each stores its result as it ends. This is `make bench` and `make bench-gpu`.

    python benchmarks/run.py                                   # what needs no data (some 50 minutes on two cores)
    python benchmarks/run.py --data FOLDER                     # also those over GSM8K, HumanEval, mathematics
    python benchmarks/run.py --only head expected_rank
    python benchmarks/run.py --device cuda                     # the head on a GPU, into head_DEVICE.json

Nothing else should run on the machine meanwhile. One that fails does not stop the others; the exit code tells.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PLAIN = ("head", "expected_rank")
"""Of drawn numbers, or of text that stands in the program."""
WITH_DATA = {
    "gradient_budget": "",
    "train_vs_trl": "gsm8k/train.jsonl",
    "token_table": "gsm8k/train.jsonl",
    "generator": None,
    "math_grader": "",
    "code_grader": "",
}
"""Benchmark -> what it is given of the data folder; None: it reads RANKTUNER_DATA."""


def commands(only: Sequence[str], data: Path | None, device: str) -> dict[str, list[str]]:
    """Return name -> command line of what is to run."""
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            sys.exit("no CUDA device is there; `make bench` measures on the CPU")
        name = "".join(x if x.isalnum() else "_" for x in torch.cuda.get_device_name().lower())
        return {"head": ["--device", "cuda", "--store", str(HERE / "results" / f"head_{name}.json")]}
    found: dict[str, list[str]] = {name: [] for name in PLAIN}
    for name, inside in WITH_DATA.items():
        if data is not None:
            found[name] = [] if inside is None else ["--data", str(data / inside)]
    missing = [name for name in only if name not in found]
    if missing:
        known = [*PLAIN, *WITH_DATA]
        sys.exit(
            f"{missing[0]} needs --data FOLDER (with gsm8k/train.jsonl)"
            if missing[0] in known
            else f"there is no benchmark {missing[0]!r}; there are {', '.join(known)}"
        )
    return {name: options for name, options in found.items() if name in (only or found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=", ".join([*PLAIN, *WITH_DATA]))
    parser.add_argument("--data", type=Path, help="folder with gsm8k/, humaneval/, humaneval_plus/, math500/, ...")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    todo = commands(arguments.only, arguments.data, arguments.device)
    failed = []
    for place, (name, options) in enumerate(todo.items(), 1):
        print(f"\n=== {place}/{len(todo)}: {name} ===", flush=True)
        start = time.monotonic()
        place_of_data = {"RANKTUNER_DATA": str(arguments.data)} if arguments.data else {}
        line = [sys.executable, str(HERE / f"{name}.py"), *options]
        if subprocess.run(line, env={**os.environ, **place_of_data}).returncode:
            failed.append(name)
        print(f"=== {name}: {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    if arguments.data is None and arguments.device == "cpu" and not arguments.only:
        print(f"\nnot run without --data FOLDER: {', '.join(WITH_DATA)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
