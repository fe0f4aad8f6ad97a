"""Tiny runs for the tests of training: a model and data in a folder, a run, and what it left behind.

As a script it makes one run from a JSON job on its command line: for launchers (torchrun), with the processes they set.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

NUMBERS = [
    *("loss", "nll", "weight_mean", "weight_max", "effective_tokens", "k_mean", "entropy_bits_mean"),
    *("high_entropy_share", "top1", "tokens", "learning_rate", "grad_norm", "clipped"),
]
"""What two runs of the same must share; speed is not among them."""
RANKED = ("loss", "weight_mean", "weight_max", "effective_tokens", "k_mean", "grad_norm")
"""Those that a rank enters."""
FLIP = 2e-4
"""What one rank, changed by one, moves in the mean over the hundred tokens of these batches."""
FSDP = {
    "FORCE_FSDP_ON_CPU": "1",
    "ACCELERATE_TORCH_DEVICE": "cpu",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen2DecoderLayer",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}
"""What `accelerate launch` sets for FSDP2, on a CPU."""
WORDS = ["the", "clips", "sold", "altogether", "answer", "numbers", "apples", "divide", "forty-two", "essentially"]


def make_data(folder: Path, n: int = 48, model: dict[str, Any] | None = None) -> Path:
    """Write a tiny model, training and evaluation rows of uneven length; return the folder."""
    import tiny

    draw = random.Random(0)
    tiny.model_folder(folder / "model", **(model or {}))
    for name, count in (("train.jsonl", n), ("eval.jsonl", 11)):
        rows = []
        for i in range(count):
            words = [draw.choice(WORDS) for _ in range(draw.randint(1, 25))]
            row: dict[str, Any] = {"question": f"What is {i}+{draw.randint(1, 99)}?", "answer": " ".join(words)}
            rows.append(row | ({"weight": 0.5} if i % 5 == 0 else {}))
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def settings(folder: Path, output: str, **flags: Any) -> dict[str, Any]:
    """Return flags of a run on the folder's model and data."""
    return {
        "model": str(folder / "model"),
        "data": str(folder / "train.jsonl"),
        "output": str(folder / output),
        "global_batch": 8,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "dtype": "fp32",
        **flags,
    }


def run(folder: Path, output: str, sets: tuple[str, ...] = (), resume: bool = False, **flags: Any) -> Path:
    """Make a run in this process; return its folder."""
    import gc

    from ranktuner.train.config import read_config
    from ranktuner.train.run import train

    # Every run collects garbage; what the libraries made when they were imported need not be looked through each time.
    gc.freeze()
    config = read_config(flags=settings(folder, output, **flags), sets=("checkpoint.keep=99", *sets))
    return train(config, resume=resume, quiet=True).output


def lines(output: Path) -> list[dict[str, Any]]:
    """Return the training lines of metrics.jsonl."""
    found = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if "loss" in line]


def weights(output: Path) -> dict[str, Any]:
    """Return the final weights."""
    from safetensors.torch import load_file

    name = "adapter_model.safetensors" if (output / "model" / "adapter_config.json").exists() else "model.safetensors"
    return load_file(output / "model" / name)


def assert_same(a: Path, b: Path, rel: float = 1e-5) -> None:
    """Hold that two runs logged the same numbers, step by step.

    The learning rate of the first step is 0, so the first two steps see the same weights. After that weights differ in
    their last digits, and two logits that round alike may change places: one rank, of one token, by one.
    """
    import pytest

    left, right = lines(a), lines(b)
    assert [line["step"] for line in left] == [line["step"] for line in right]
    for x, y in zip(left, right, strict=True):
        for name in NUMBERS:
            flip = FLIP if x["step"] > 2 and name in RANKED else 0.0
            assert x[name] == pytest.approx(y[name], rel=max(rel, flip), abs=1e-9), f"step {x['step']}: {name}"


def furthest(a: Path, b: Path) -> float:
    """Return the largest difference between the final weights of two runs."""
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    return max(float((left[name].float() - right[name].float()).abs().max()) for name in left)


def launch(jobs: list[dict[str, Any]], processes: int, environment: dict[str, str] | None = None) -> None:
    """Run jobs one after another under torchrun; a failure shows what the processes said."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    done = subprocess.run(
        [*command, __file__, json.dumps(jobs)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def jobs(folder: Path, methods: list[str], name: str, **more: Any) -> list[dict[str, Any]]:
    """Return one job for `launch` a method; the outputs are NAME-0, NAME-1, ..."""
    made = []
    for i, method in enumerate(methods):
        job = {"folder": str(folder), "output": f"{name}-{i}", "method": method, "micro_batch": 2}
        made.append({**job, "eval_data": str(folder / "eval.jsonl"), **more})
    return made


def assert_like_alone(folder: Path, name: str, alone: dict[str, Path], says: str) -> None:
    """Hold the runs of `jobs` to those of one process, method by method; `says` is what they must call themselves."""
    for i, path in enumerate(alone.values()):
        output = folder / f"{name}-{i}"
        assert_same(path, output)
        assert says in json.loads((output / "run.json").read_text())["active"]
        assert furthest(path, output) <= 2e-5
        one, other = (_last_eval(found) for found in (path, output))
        assert abs(one - other) <= 1e-5 * abs(one)


def _last_eval(output: Path) -> float:
    found = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    last: float = [line["eval_nll"] for line in found if "eval_nll" in line][-1]
    return last


def cut_off(folder: Path, name: str, again: str, step: int) -> None:
    """Make a copy of a finished run that looks as if it had been killed after `step`."""
    shutil.copytree(folder / name, folder / again)
    shutil.rmtree(folder / again / "model")
    for checkpoint in (folder / again / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > step:
            shutil.rmtree(checkpoint)
    record = (folder / again / "run.json").read_text().replace('"outcome": "finished"', '"outcome": "running"')
    (folder / again / "run.json").write_text(record.replace(name, again))


if __name__ == "__main__":
    if os.environ.get("FORCE_FSDP_ON_CPU"):
        # accelerate gives FSDP to accelerators only; on a CPU the same code runs when it believes to have one.
        from accelerate import DistributedType, PartialState

        PartialState._prepare_backend = lambda *a, **k: ("gloo", DistributedType.MULTI_GPU)
    for job in json.loads(sys.argv[1]):
        run(Path(job.pop("folder")), job.pop("output"), tuple(job.pop("sets", ())), job.pop("resume", False), **job)
    from ranktuner.train.launch import leave

    leave()
