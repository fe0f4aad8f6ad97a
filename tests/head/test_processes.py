"""Two processes over gloo give the loss and gradient norm of one: DDP, and real FSDP2 in five wrap styles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from head.two_processes import CASES


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("processes")
    script = Path(__file__).parent / "two_processes.py"
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (json.loads((folder / name).read_text()) for name in ("one.json", "two.json"))
    return one, two


@pytest.mark.parametrize(("style", "tie", "method"), CASES)
def test_two_processes_are_one(runs: tuple[dict[str, Any], dict[str, Any]], style: str, tie: bool, method: str) -> None:
    expected, found = runs[0][json.dumps([tie, method])], runs[1][json.dumps([style, tie, method])]
    assert found["parameters"] == (["Parameter"] if style == "ddp" else ["DTensor"])
    assert found["losses"] == pytest.approx(expected["losses"], rel=2e-6)
    assert found["norms"] == pytest.approx(expected["norms"], rel=2e-5)
    assert found["evals"] == pytest.approx(expected["evals"], rel=2e-5)
    assert len(set(found["norms"])) == len(found["norms"]), "the steps did not change the model"
