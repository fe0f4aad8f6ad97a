"""What `ranktuner eval` says while it works, where nobody draws a bar."""

from __future__ import annotations

import pytest

from ranktuner.cli import eval_progress
from ranktuner.cli.eval_progress import Bar
from ranktuner.evals.records import Grade


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only when a test says so."""
    now = [0.0]
    monkeypatch.setattr(eval_progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_every_half_minute_with_time_left_and_running_score(clock: list[float], capsys) -> None:
    bar = Bar(quiet=False, unit="sampled")
    bar.started("digits", total=12, done=2)
    for second, verdict in ((10, "correct"), (20, "wrong"), (40, "wrong"), (60, "correct"), (80, "wrong")):
        clock[0] = second
        bar.sampled(None)
        bar.graded(None, Grade(verdict, None, ""))
    assert capsys.readouterr().err.splitlines() == [
        "digits: 5 of 12, about 2 min left, pass@1 so far 50.0%",
        "digits: 7 of 12, about 1 min left, pass@1 so far 50.0%",
    ]


def test_the_grader_is_seen_to_move_when_everything_is_sampled(clock: list[float], capsys) -> None:
    bar = Bar(quiet=False, unit="sampled")
    bar.started("digits", total=4, done=4)
    for second in (20, 40, 60, 80):
        clock[0] = second
        bar.graded(None, Grade("correct", None, ""))
    assert capsys.readouterr().err.splitlines() == [
        "digits: 4 of 4, 2 graded, pass@1 so far 100.0%",
        "digits: 4 of 4, 4 graded, pass@1 so far 100.0%",
    ]


def test_quiet_says_nothing(clock: list[float], capsys) -> None:
    bar = Bar(quiet=True, unit="graded")
    bar.started("digits", total=2, done=0)
    clock[0] = 100.0
    bar.graded(None, Grade("correct", None, ""))
    assert capsys.readouterr().err == ""
    assert bar.done == 1
