"""The console and metrics.jsonl: what a step says, live in a terminal and line by line elsewhere."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from ranktuner.train.telemetry import Display, MetricsFile, line_for, main_console

STEP = {
    "loss": 0.51234,
    "nll": 1.23456,
    "effective_tokens": 0.4321,
    "weight_mean": 0.42,
    "entropy_bits_mean": 1.75,
    "top1": 0.625,
    "grad_norm": 3.5,
    "learning_rate": 5e-5,
    "tokens_per_s": 12345.6,
}


def shown(terminal: bool, steps: int = 3) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=140)
    with Display(steps, 0, console) as display:
        display.say("note     [brackets] stay")
        for step in range(1, steps + 1):
            display.update({"step": step, **STEP})
        display.update({"step": steps, "eval_nll": 0.75})
    return out.getvalue()


def test_a_terminal_shows_progress_time_left_speed_and_the_numbers() -> None:
    said = shown(terminal=True)
    for words in ("3/3", "left", "tokens per s", "12,346", "loss", "0.5123", "nll", "1.235", "effective tokens"):
        assert words in said
    assert "eval nll" in said
    assert "[brackets] stay" in said


def test_elsewhere_the_first_the_last_and_evaluations_are_lines() -> None:
    lines = [line for line in shown(terminal=False, steps=5).splitlines() if line.startswith("step")]
    assert [line.split("  ")[0] for line in lines] == ["step 1/5", "step 5/5", "step 5/5"]
    assert lines[0] == line_for({"step": 1, **STEP}, 5)
    assert "loss 0.5123  nll 1.235  effective tokens 0.4321  grad norm 3.5  tokens per s 12,346" in lines[0]
    assert lines[-1] == "step 5/5  eval nll 0.75"


def test_only_the_first_process_speaks() -> None:
    assert main_console(1) is None
    assert main_console(0, quiet=True) is None
    with Display(3, 0, None) as display:
        display.update({"step": 1, **STEP})


def test_every_line_is_on_the_disk_at_once_and_no_nan_is_written(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "run" / "metrics.jsonl")
    file.write({"step": 1, "loss": 0.5})
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text()) == {"step": 1, "loss": 0.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        file.write({"step": 2, "loss": float("nan")})
    file.close()
