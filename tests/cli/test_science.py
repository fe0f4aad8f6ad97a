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


def test_help_of_a_command_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "help", "weigh")
    assert status == 0
    assert "Give the weight of every method for one token" in out
    assert run(capsys, "help", "wiegh")[0] == 2


def test_unknown_option_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "--verison")
    assert status == 2
    assert "there is no option '--verison'; did you mean '--version'" in err


@pytest.mark.parametrize("words", [[], ["methods"]])
def test_a_reader_that_goes_away_gets_no_traceback(words: list[str]) -> None:
    ours = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ours.stdout is not None
    ours.stdout.close()
    assert ours.stderr is not None
    assert ours.stderr.read() == ""
    assert ours.wait() == 1


def test_methods_in_a_pipe_are_one_line_each() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([*COMMAND, "methods"], capture_output=True, text=True, env=environment, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("relative-rank"))
    assert "w0 / I" in line
    assert line.rstrip().endswith("arXiv 2602.01745, (f, g) table")
    assert "\x1b" not in done.stdout


def test_names_stay_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = run(capsys, "methods")[1]
    assert max(map(len, out.splitlines())) <= 60
    assert {"relative-rank", "alpha-power", "entropy-reg"} <= {line.split(" ")[0] for line in out.splitlines()}


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


def test_methods_says_where_a_formula_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert "divided there by the mean weight of the micro-batch" in run(capsys, "methods", "mile")[1]
    assert "our reading" in run(capsys, "methods", "overtone")[1]
    assert "its code could not be read" in run(capsys, "methods", "ranktuner")[1]


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
    assert "needs other tokens; talr(tau=2) gives its tau" in rows["talr"]
    assert "-0.02 times the entropy in nats" in rows["entropy-reg"]


def test_a_label_that_shares_the_top_is_a_top_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("weigh", "--p", "0.4", "--entropy", "1.6", "--rank", "2", "--p-max", "0.4", "--method", "overtone")
    assert run(capsys, *words)[1].splitlines()[1].split() == ["overtone", "0.1"]


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        (("2", "6", "15", "0.06"), "p is 2; a probability above 0 and at most 1"),
        (("0.02", "6", "150", "0.06"), "at most 1/p = 50 tokens"),
        (("0.02", "6", "0", "0.06"), "rank is 0; 1 (the top) or more"),
        (("0.02", "6", "1", "0.06"), "rank is 1 with p = 0.02 below p_max = 0.06"),
        (("0.5", "6", "1", "0.4"), "the largest probability lies between p and 1"),
        (("0.02", "-1", "15", "0.06"), "entropy is -1; a number of bits from 0 to 32"),
        (("0.02", "5000", "15", "0.06"), "entropy is 5000; a number of bits from 0 to 32"),
        (("0.02", "nan", "15", "0.06"), "entropy is nan"),
        (("nan", "6", "15", "0.06"), "p is nan"),
        (("1e-30", "6", "9" * 25, "0.06"), "no vocabulary has so many tokens"),
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


def with_plugin(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside an installed package `halves` that offers the method `half`."""
    (folder / "halves.py").write_text(code)
    info = folder / "halves-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ranktuner.methods]\nhalf = halves:half\n")
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})


ONE_TOKEN = ("weigh", "--p", "0.02", "--entropy", "6", "--rank", "15", "--p-max", "0.06")


def test_an_installed_package_offers_methods_by_entry_point(tmp_path: Path) -> None:
    done = with_plugin(tmp_path, "def half(s):\n    return s.p * 0 + 0.5\n", *ONE_TOKEN, "--method", "half")
    assert done.returncode == 0, done.stderr
    assert "0.5" in done.stdout.splitlines()[1]


def test_a_package_that_does_not_load_is_named_and_takes_nothing_else_away(tmp_path: Path) -> None:
    broken = "import no_such_module\n"
    why = (
        "method 'half' of halves (halves:half) cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"
    )
    one = with_plugin(tmp_path, broken, "methods", "half")
    assert one.returncode == 1
    assert one.stderr.strip() == f"ranktuner methods: {why}; mend or uninstall that package"
    for words in (("methods",), ONE_TOKEN):
        done = with_plugin(tmp_path, broken, *words)
        assert done.returncode == 0, done.stderr
        assert any(line.startswith("ranktuner") for line in done.stdout.splitlines())
        assert "cannot be loaded: ModuleNotFoundError" in done.stdout
