"""The commands about the science, as they are typed: what they print, and what they say of bad input."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranktuner.cli import COMMANDS, main

COMMAND = [sys.executable, "-c", "import sys; from ranktuner.cli import main; sys.exit(main())"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out = capsys.readouterr()
    return status, out.out, out.err


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_menu_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys)
    assert status == 0
    assert all(f"  {name} " in out for name in COMMANDS)


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "metods")
    assert status == 2
    assert "there is no command 'metods'; did you mean 'methods'" in err


def test_methods_lists_all_of_them_with_their_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    from ranktuner.registry import names

    status, out, _ = run(capsys, "methods")
    assert status == 0
    listed = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert set(names()) <= listed
    assert "1 - (1-lam) 1[is_top]" in out


def test_methods_explains_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "methods", "eaft(k=10)")
    assert out.startswith("eaft(k=10)")
    assert "whole number, at least 2; default 20" in out
    assert "2601.02151" in out


def test_methods_says_where_a_formula_is_not_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not confirmed" in run(capsys, "methods", "mile")[1]
    assert "our reading" in run(capsys, "methods", "overtone")[1]


def test_methods_of_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "methods", "rankturner")
    assert status == 1
    assert err.strip() == "ranktuner methods: unknown method 'rankturner'; did you mean 'ranktuner'?"


def test_weigh_gives_the_numbers_of_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "weigh", "--p", "0.02", "--entropy", "6", "--rank", "15", "--p-max", "0.06")
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    # by hand: s = 2^6/4 + 1 = 17, K = log2(18)^-2, S = (0.02 * 17)^-K
    assert float(rows["ranktuner"].split()[1]) == pytest.approx((0.02 * 17) ** -(4.169925001442312**-2), rel=1e-3)
    assert float(rows["dft"].split()[1]) == 0.02
    assert "needs top-k entropy" in rows["eaft"]
    assert "needs tau" in rows["talr"]
    assert "-0.02 times the entropy in nats" in rows["entropy-reg"]


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (("2", "6", "15", "0.06"), "p is 2; a probability above 0 and at most 1"),
        (("0.02", "6", "150", "0.06"), "at most 1/p = 50 tokens"),
        (("0.02", "6", "0", "0.06"), "rank is 0; 1 (the top) or more"),
        (("0.02", "6", "1", "0.06"), "rank is 1 with p = 0.02 below p_max = 0.06"),
        (("0.5", "6", "1", "0.4"), "the largest probability lies between p and 1"),
        (("0.02", "-1", "15", "0.06"), "entropy is -1; a number of bits of at least 0"),
        (("0.02", "2.8", "15", "0.06"), "are these nats?"),
    ],
)
def test_weigh_refuses_signals_no_distribution_has(
    capsys: pytest.CaptureFixture[str], signals: tuple[str, ...], message: str
) -> None:
    p, entropy, rank, p_max = signals
    status, _, err = run(capsys, "weigh", "--p", p, "--entropy", entropy, "--rank", rank, "--p-max", p_max)
    assert status == 1
    assert message in err


def test_doctor_names_what_is_absent_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ranktuner.cli import doctor

    installed = {"transformers": "5.10.4", "trl": "1.16.0", "verl": "0.9.1", "tensordict": "0.10.0"}
    monkeypatch.setattr(doctor, "version_of", installed.get)
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    assert "transformers 5.10.4 was not tested with this version; 5.23 was" in out
    assert "pip install 'ranktuner[vllm]'" in out
    assert "verl 0.9.1 fails at run time beside trl 1.16.0" in out


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, ranktuner, ranktuner.cli; print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_answers_at_once() -> None:
    best = min(_seconds([*COMMAND, "--help"]) for _ in range(5))
    assert best < 0.3, f"ranktuner --help took {best:.2f} s"


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - start


def test_an_installed_package_offers_methods_by_entry_point(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text("def half(s):\n    return s.p * 0 + 0.5\n")
    info = tmp_path / "halves-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ranktuner.methods]\nhalf = halves:half\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ["weigh", "--p", "0.02", "--entropy", "6", "--rank", "15", "--p-max", "0.06", "--method", "half"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "0.5" in done.stdout.splitlines()[1]
