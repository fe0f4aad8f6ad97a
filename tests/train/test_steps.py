"""From raw sums to a line of the log: over the steps between two lines, exactly, and on from a checkpoint."""

from __future__ import annotations

import json

import pytest
import torch

from ranktuner.train import steps
from ranktuner.train.steps import StepLog


def sums(tokens: float, weight_max: float) -> dict[str, torch.Tensor]:
    values = {
        "tokens_sum": tokens,
        "loss_sum": 2 * tokens,
        "nll_sum": 3 * tokens,
        "weight_sum": 0.5 * tokens,
        "weight_sq_sum": 0.5 * tokens,
        "weight_max": weight_max,
        "k_sum": 0.25 * tokens,
        "entropy_bits_sum": tokens,
        "high_entropy_sum": 0.1 * tokens,
        "top1_sum": 0.75 * tokens,
    }
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(steps.time, "perf_counter", lambda: now[0])
    return now


def test_a_line_holds_the_steps_since_the_last(clock: list[float]) -> None:
    log = StepLog()
    log.add(sums(30, 4.0), 1e-3, 0.5, 1.0)
    log.add({**sums(10, 7.0), "loss_sum": torch.tensor(100.0)}, 2e-3, 1.5, 1.0)
    clock[0] += 4
    with log.pause():
        clock[0] += 96  # a save or an evaluation is not training
    line = log.record(2)
    assert (line["step"], line["tokens"], line["tokens_per_s"]) == (2, 40, 10.0)
    assert line["loss"] == (60 + 100) / 40  # of all tokens, no mean of means
    assert (line["nll"], line["weight_max"], line["effective_tokens"]) == (3, 7.0, 0.5)
    assert (line["learning_rate"], line["grad_norm"], line["clipped"]) == (2e-3, 1.5, 0.5)
    clock[0] += 2
    log.add(sums(10, 1.0), 0.0, 9.0, 0.0)
    line = log.record(3)
    assert (line["tokens"], line["weight_max"], line["tokens_per_s"]) == (10, 1.0, 5.0)
    assert line["clipped"] == 0  # max_grad_norm=0 is never


def test_a_checkpoint_between_two_lines_loses_none_of_it(clock: list[float]) -> None:
    whole, cut = StepLog(), StepLog()
    for log in (whole, cut):
        log.add(sums(30, 4.0), 1e-3, 5.0, 1.0)
    again = StepLog()
    again.load_state(json.loads(json.dumps(cut.state())))
    lines = []
    for log in (whole, again):
        log.add(sums(10, 2.0), 2e-3, 0.5, 1.0)
        lines.append({k: v for k, v in log.record(2).items() if k != "tokens_per_s"})
    assert lines[0] == lines[1]
    assert lines[0]["clipped"] == 0.5
