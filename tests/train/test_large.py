"""Data larger than one wants to hold: the first step of a 2 GB file stays within a gigabyte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

SIZE = 2 * 2**30
PROGRAM = """
import json, resource, sys
from ranktuner.train.config import read_config
from ranktuner.train.run import train
import ranktuner.train.build, trl, transformers  # the libraries' own weight is not the data's
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model, data, output = sys.argv[1:4]
flags = {"model": model, "data": data, "output": output, "global_batch": 8, "max_steps": 1}
result = train(read_config(flags=flags), quiet=True)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
plan = result.plan
print(json.dumps({"kib": after - before, "sequences": plan.sequences, "estimated": plan.counts.estimated}))
"""


@pytest.mark.slow
def test_a_file_of_two_gigabytes_trains_its_first_step_in_less_than_one(tmp_path: Path) -> None:
    model, data = tiny.model_folder(tmp_path / "model"), tmp_path / "large.jsonl"
    answer = "She sold forty-eight clips in April and half as many in May. " * 40
    block = "".join(json.dumps({"question": f"How many clips, {i}?", "answer": answer}) + "\n" for i in range(2000))
    rows = 0
    with data.open("w") as file:
        while file.tell() < SIZE:
            file.write(block)
            rows += 2000
    command = [sys.executable, "-c", PROGRAM, str(model), str(data), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["sequences"] == rows
    assert said["estimated"]
    assert said["kib"] * 1024 < 2**30, f"{said['kib'] / 2**20:.2f} GiB above the libraries"
