"""The row pass by itself: the plain one against the oracle's numbers, and the choice between the implementations."""

from __future__ import annotations

import logging

import pytest
import row_cases
import torch
from drawn import judged
from row_cases import LOW, VOCABULARIES
from written_out import problem, signals_of

from ranktuner.errors import InputError
from ranktuner.kernels import rows
from ranktuner.signals import Needs

each_dtype = pytest.mark.parametrize("dtype", LOW, ids=str)


# ---------------------------------------------------------------- numbers


@each_dtype
@pytest.mark.parametrize("vocab", [*VOCABULARIES, 5000])
@pytest.mark.parametrize("block", [rows.BLOCK_ELEMENTS, 1, 700])
def test_plain(vocab: int, dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_ELEMENTS", block)
    logits, target = row_cases.hard_logits(vocab, dtype)
    row_cases.check_sums("plain", logits, target)
    row_cases.check_gradient("plain", logits, target)


def test_plain_on_broken_rows() -> None:
    row_cases.check_broken_rows("plain")


@pytest.mark.parametrize("dtype", [torch.float64, *LOW], ids=str)
def test_statistics_are_the_oracles(dtype: torch.dtype) -> None:
    logits, target = row_cases.hard_logits(37, dtype)
    got = rows.statistics(logits, target, Needs(), "plain")
    close = 1e-11 if dtype is torch.float64 else 4e-6
    for i, t in enumerate(judged(logits, target)):
        assert got.rank[i].item() == t.rank
        assert bool(got.is_top[i]) == t.is_top
        assert got.nll[i].item() == pytest.approx(t.nll, rel=close, abs=close)
        assert got.entropy[i].item() / 0.6931471805599453 == pytest.approx(t.entropy_bits, rel=close, abs=close)
        assert got.p_max[i].item() == pytest.approx(t.p_max, rel=close)


# ---------------------------------------------------------------- the choice


@pytest.fixture(autouse=True)
def a_run_that_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_seen", {"logits": 0})
    monkeypatch.setattr(rows, "_announced", set())
    monkeypatch.setattr(rows, "_compiles", lambda: True)
    monkeypatch.setattr(rows, "_has_compiler", lambda: True)
    monkeypatch.delenv("RANKTUNER_ROWS", raising=False)


LOGITS = torch.zeros(4, 9)


def test_a_run_earns_its_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "EARN_COMPILATION", 100)
    assert [rows.choose(LOGITS) for _ in range(5)] == ["plain", "plain", "compiled", "compiled", "compiled"]


def test_compilation_pays_after_some_twenty_seconds_of_plain_passes() -> None:
    assert rows.EARN_COMPILATION == 3_000_000_000


def test_what_runs_is_said_once_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rows, "EARN_COMPILATION", 100)
    with caplog.at_level(logging.INFO, logger="ranktuner"):
        for _ in range(6):
            rows.choose(LOGITS)
    assert caplog.messages == [
        "row pass: plain (short runs do not earn the compilation; RANKTUNER_ROWS=compiled has it at once)",
        "row pass: compiled (this run is long enough)",
    ]


def test_without_a_compiler_the_plain_pass_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rows, "EARN_COMPILATION", 0)
    monkeypatch.setattr(rows, "_has_compiler", lambda: False)
    with caplog.at_level(logging.INFO, logger="ranktuner"):
        assert rows.choose(LOGITS) == "plain"
    assert caplog.messages == ["row pass: plain (no C++ compiler was found; with one (g++), long runs are faster)"]


def test_a_compiler_that_does_not_work_leaves_the_plain_pass(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Headers can be missing where g++ is there; a long run must not end at its three billionth logit."""
    monkeypatch.undo()
    monkeypatch.setattr(rows, "EARN_COMPILATION", 0)
    monkeypatch.setattr(rows, "_announced", set())
    monkeypatch.setattr(rows, "_has_compiler", lambda: True)

    def broken(function: object) -> object:
        def fail(*args: object) -> object:
            raise RuntimeError("fatal error: Python.h: No such file or directory")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    rows._compiles.cache_clear()
    try:
        with caplog.at_level(logging.INFO, logger="ranktuner"):
            assert [rows.choose(LOGITS) for _ in range(3)] == ["plain"] * 3
    finally:
        rows._compiles.cache_clear()
    assert caplog.messages == [
        "torch.compile failed, so the plain row pass stays in use: fatal error: Python.h: No such file or directory",
        "row pass: plain (torch.compile does not work here)",
    ]


def test_one_row_and_float64_take_the_plain_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "EARN_COMPILATION", 0)
    assert rows.choose(LOGITS) == "compiled"
    assert rows.choose(LOGITS[:1]) == rows.choose(LOGITS.double()) == "plain"
    assert rows.choose(LOGITS[:1], "compiled") == rows.choose(LOGITS.double(), "compiled") == "plain"


def test_other_devices_take_the_plain_pass() -> None:
    assert rows.choose(torch.empty(4, 9, device="meta")) == "plain"


def test_the_environment_decides_unless_the_call_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKTUNER_ROWS", "compiled")
    assert rows.choose(LOGITS) == "compiled"
    assert rows.choose(LOGITS, "plain") == "plain"
    assert rows.choose(LOGITS, "auto") == "plain"


@pytest.mark.parametrize(
    ("name", "hint"), [("compild", "did you mean 'compiled'"), ("cuda", "known: auto, compiled, plain, triton")]
)
def test_unknown_names_are_answered_with_the_near_ones(name: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=f"row pass '{name}' is unknown; {hint}"):
        rows.choose(LOGITS, name)
    monkeypatch.setenv("RANKTUNER_ROWS", name)
    with pytest.raises(InputError, match=f"row pass '{name}' is unknown"):
        signals_of(problem())
