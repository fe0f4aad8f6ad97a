"""Killed at random five times, and stopped once, a comparison finishes with the same table as an undisturbed one.

As a script it makes comparisons in forked children, which start at once since the libraries are loaded already, and
kills them: for the test.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from ranktuner.findings import Finding

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGKILL, signal.SIGKILL]
"""Five kills, and one Ctrl-C among them."""
RECIPE = """
name = "killed"
models = ["tiny"]
methods = ["sft", "ranktuner(prior=prob)"]
[problems]
train = 32
test = 4
steps = [2]
[train.data]
source = ["problems"]
max_length = 256
[train.optimizer]
max_steps = 6
learning_rate = 1e-2
[train.batch]
size = 8
[train.checkpoint]
every = 1
[eval]
tasks = ["problems"]
n = 4
k = [1, 4]
max_new_tokens = 12
batch = 4
[[diagnose]]
kind = "regimes"
data = "problems"
rows = 20
max_length = 256
"""


def test_killed_five_times_it_ends_with_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(RECIPE)
    # A process of its own, whose children start at once, since it has loaded the libraries.
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    kills = json.loads(done.stdout.splitlines()[-1])
    assert len(kills) == len(SIGNALS), f"killed only {kills}"
    assert len({kill["during"] for kill in kills}) >= 3, f"always at the same place: {kills}"
    for name in ("comparison", "regimes-tiny"):
        calm, killed = (tmp_path / way / "findings" / f"{name}.json" for way in ("calm", "killed"))
        assert _numbers(calm) == _numbers(killed), name
    assert _samples(tmp_path / "calm-cells") == _samples(tmp_path / "killed-cells"), "every sample, to the byte"


def _numbers(path: Path) -> str:
    return json.dumps(Finding.load(path).numbers)


def _samples(cells: Path) -> dict[str, list[str]]:
    """Stored samples of every evaluation; the order in which they were finished is no part of the result."""
    files = sorted(cells.glob("eval-*/samples/*.jsonl"))
    return {file.parts[-3]: sorted(file.read_text().splitlines()[1:]) for file in files}


def _child(folder: Path, way: str, output: int) -> int:
    """Compare in a forked child that says everything into a pipe; return its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(output, 2)
        import ranktuner

        found = ranktuner.compare(folder / "killed.toml", cells=folder / f"{way}-cells", output=folder / way)
        code = len(found.failed)
    finally:
        os._exit(code)


def _calm(folder: Path) -> int:
    """Run undisturbed; return how many lines it says."""
    reading, writing = os.pipe()
    child = _child(folder, "calm", writing)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0, "\n".join(lines[-30:])
    return len(lines)


def _kill_and_finish(folder: Path, lines: int) -> list[dict[str, str]]:
    """Kill after a random number of lines and a random moment, five times; then let it finish."""
    draw, kills = random.Random(7), []
    while True:
        reading, writing = os.pipe()
        child = _child(folder, "killed", writing)
        os.close(writing)
        left = SIGNALS[len(kills) :]
        wanted = draw.randint(3, lines // 5) if left else None
        during, count = "", 0
        with os.fdopen(reading) as said:
            for line in said:
                during, count = line.split("] ")[-1].strip() if line.startswith("[") else during, count + 1
                if count == wanted:
                    time.sleep(draw.random() * 0.05)
                    os.kill(child, left[0])
                    kills.append({"during": during, "after": line.strip()[:60]})
        status = os.waitpid(child, 0)[1]
        if not left:
            assert status == 0
            return kills


if __name__ == "__main__":
    import torch  # noqa: F401
    import transformers  # noqa: F401
    import trl  # noqa: F401

    from ranktuner.compare import run  # noqa: F401

    at = Path(sys.argv[1])
    print(json.dumps(_kill_and_finish(at, _calm(at))))
