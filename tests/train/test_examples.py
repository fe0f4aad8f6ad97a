"""The examples run as they are printed, and the flat loop gives the trainer's numbers."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from train import runs

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make_data(tmp_path_factory.mktemp("runs"))


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> str:
    """Run an example as `python SCRIPT ...` does; return what it printed."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("method", ["ranktuner(prior=prob)", "talr"])
def test_the_flat_loop_gives_the_trainers_numbers(
    folder: Path, method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len((EXAMPLES / "02_loop.py").read_text().splitlines()) < 120
    said = run(
        *(capsys, monkeypatch),
        *("02_loop.py", "--model", str(folder / "model"), "--data", str(folder / "train.jsonl"), "--method", method),
        *("--steps", "4", "--batch", "8", "--micro-batches", "4", "--learning-rate", "1e-3"),
    )
    found = re.findall(r"loss ([\d.e-]+)  nll ([\d.e-]+)  mean weight ([\d.e-]+).*gradient ([\d.e-]+)", said)
    trained = runs.lines(runs.run(folder, f"trainer-{method[:4]}", method=method, micro_batch=2))
    assert len(found) == len(trained) == 4
    for line, (loss, nll, weight, norm) in zip(trained, found, strict=True):
        assert float(loss) == pytest.approx(line["loss"], rel=2e-4)
        assert float(nll) == pytest.approx(line["nll"], rel=1e-5, abs=1e-5)
        assert float(weight) == pytest.approx(line["weight_mean"], rel=2e-4)
        assert float(norm) == pytest.approx(line["grad_norm"], rel=2e-4)


def test_trl_with_one_argument_more(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "rows.jsonl"
    row = {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "the clips"}]}
    data.write_text("".join(json.dumps(row) + "\n" for _ in range(32)))
    said = run(capsys, monkeypatch, "03_trl.py", str(folder / "model"), str(data), str(tmp_path / "out"))
    logged = [ast.literal_eval(line) for line in said.splitlines() if line.startswith("{'loss'")]
    assert len(logged) == 8
    assert all({"nll", "weight_mean", "effective_tokens"} <= line.keys() for line in logged)
