"""The pool of grading workers: order, limits, deaths, and what must not get in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from items import item

from ranktuner.errors import InputError, RankTunerError
from ranktuner.evals.graders import grader, pool
from ranktuner.evals.records import Grade, Problem, Sample

RULES = Path(__file__).parent / "pool_rules.py"


@pytest.fixture(autouse=True)
def rules_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(RULES.parent))


def verdicts(texts: list[str], rule: str = "act", **options: float) -> list[Grade]:
    items = [item("", text) for text in texts]
    return list(pool.grade(items, rule=f"pool_rules:{rule}", **options))  # type: ignore[arg-type]


def test_grades_come_in_the_order_of_the_items() -> None:
    texts = [f"say {i}" if i % 3 else f"nap 0.05 {i}" for i in range(200)]
    assert [g.why.split()[-1] for g in verdicts(texts, workers=3, seconds=20)] == [str(i) for i in range(200)]


def test_items_are_read_as_they_are_needed_and_grades_given_as_they_are_ready() -> None:
    taken = 0

    def items() -> Iterator[tuple[Problem, Sample]]:
        nonlocal taken
        for i in range(100_000):
            taken += 1
            yield item("", f"say {i}")

    grades = pool.grade(items(), rule="pool_rules:act", workers=2, seconds=20)
    assert next(grades).why == "said 0"
    assert taken <= 2 * pool.AHEAD + 1
    grades.close()  # type: ignore[attr-defined]


def test_a_slow_first_item_holds_back_no_more_than_the_window() -> None:
    """All that may run ahead is done while the first item is slow; then the pool must go on, not stop or spin."""
    count = 2 * pool.AHEAD * 2 + 7
    grades = verdicts(["nap 1 0", *(f"say {i}" for i in range(1, count))], workers=2, seconds=20)
    assert [g.why for g in grades] == [f"said {i}" for i in range(count)]


def test_a_late_answer_is_killed_even_in_a_c_call_and_the_rest_goes_on() -> None:
    start = time.monotonic()
    grades = verdicts(["say 1", "c-call", "say 2", "spin", "say 3"], workers=2, seconds=1)
    assert [g.verdict for g in grades] == ["correct", "timeout", "correct", "timeout", "correct"]
    assert time.monotonic() - start < 20


def test_the_limit_is_the_pools_and_not_that_of_the_workers_own_alarm() -> None:
    """The alarm is there for workers whose pool was killed; it rings five seconds later."""
    grades = pool.grade([item("", "say 1"), item("", "spin")], rule="pool_rules:act", workers=1, seconds=1)
    assert next(grades).verdict == "correct"  # from here on no start of a process is waited for
    start = time.monotonic()
    assert next(grades).verdict == "timeout"
    assert 0.5 < time.monotonic() - start < 4


def test_an_answer_that_runs_over_while_the_next_is_waited_for_is_a_timeout_too() -> None:
    def items() -> Iterator[tuple[Problem, Sample]]:
        yield item("", "spin")
        time.sleep(8)  # a slow generator; the worker's own alarm ends it after 1 + 5 s
        yield item("", "say 1")

    grades = list(pool.grade(items(), rule="pool_rules:act", workers=2, seconds=1))
    assert [g.verdict for g in grades] == ["timeout", "correct"]


def test_a_worker_that_dies_is_an_error_and_is_replaced() -> None:
    grades = verdicts(["say 1", "die", "say 2"], workers=1, seconds=20)
    assert [g.verdict for g in grades] == ["correct", "error", "correct"]
    assert "ended with code 3" in grades[1].why


def test_memory_is_limited() -> None:
    grades = verdicts(["memory", "say 2"], workers=1, seconds=20)
    assert [g.verdict for g in grades] == ["error", "correct"]
    assert grades[0].why == "the grader ran out of memory"


def test_a_grader_that_raises_gives_an_error_verdict_with_its_message() -> None:
    (grade,) = verdicts(["raise"], workers=1, seconds=20)
    assert (grade.verdict, grade.why) == ("error", "the grader failed: ValueError: so it goes")


def test_deep_recursion_is_unparsed() -> None:
    (grade,) = verdicts(["recurse"], workers=1, seconds=20)
    assert grade.verdict == "unparsed"


def test_what_a_grader_prints_is_not_taken_for_a_grade() -> None:
    (grade,) = verdicts(["print"], workers=1, seconds=20)
    assert (grade.verdict, grade.why) == ("correct", "printed")


def test_a_sample_that_was_never_generated_is_an_error_not_a_wrong_answer() -> None:
    problem, sample = item("", "", "error")
    (grade,) = pool.grade([(problem, sample)], rule="pool_rules:act", workers=1)
    assert grade.verdict == "error"


def test_no_items_start_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("a worker was started"))
    assert list(pool.grade([], rule="pool_rules:act")) == []


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match=r"workers=0, seconds=10\.0: expected at least one worker and a time above 0"):
        pool.grade([], rule="pool_rules:act", workers=0)


def test_a_worker_that_cannot_start_says_why() -> None:
    with pytest.raises(RankTunerError, match="ended with code 1 before it could start"):
        verdicts(["say 1"], rule="act_that_is_not_there")


def test_workers_import_neither_torch_nor_the_users_program() -> None:
    (grade,) = verdicts(["modules"], workers=1, seconds=60)
    loaded = set(grade.why.split())
    assert not loaded & {"torch", "transformers", "datasets", "numpy", "pytest"}
    (grade,) = pool.grade([item("", "")], rule="pool_rules:modules_of_math", workers=1, seconds=60)
    assert "sympy" in grade.why.split()
    assert "torch" not in grade.why.split()


def test_workers_end_with_the_pool_and_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "from ranktuner.evals.graders import pool\nfrom items import item\n"
        "g = pool.grade([item('', 'pid'), item('', 'spin')], rule='pool_rules:act', workers=2, seconds=2)\n"
        "print(next(g).why, flush=True)\nnext(g)\n"
    )
    source = Path(pool.__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": f"{RULES.parent}{os.pathsep}{source}"}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_an_unknown_grader_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown grader 'maths'; did you mean 'math'\?"):
        grader("maths")


def test_kept_workers_grade_again_and_end_with_the_block() -> None:
    def pids() -> set[str]:
        return {grade.why for grade in verdicts(["pid"] * 8, workers=2, seconds=60)}

    with pool.keep_workers():
        first = pids()
        killed = int(next(iter(first)))
        assert pids() == first
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
        later = pids()
        assert str(killed) not in later, "one that died in the meantime is replaced, and no answer is lost"
    assert pids().isdisjoint(later)
