"""`ranktuner eval` and `ranktuner grade` as a user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tiny
from stand_in import write_task

from ranktuner.cli import main
from ranktuner.evals import graders
from ranktuner.evals.generators.hf import TransformersGenerator
from ranktuner.findings import Finding


@pytest.fixture(autouse=True)
def _stand_in_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graders.GRADERS, "math", "stand_in:grade")
    monkeypatch.setattr("ranktuner.evals.tasks.loading.unaccepted", lambda *_: [], raising=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.model_folder(tmp_path_factory.mktemp("model")))


def test_a_run_from_start_to_table_and_again(tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    toml, folder = write_task(tmp_path), tmp_path / "run"
    command = ["eval", "--model", model, "--task", str(toml), "--output", str(folder), "-n", "2", "--device", "cpu"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert re.search(r"digits +5 +2 +1 +[\d.]+ %", out), out
    assert "digits: 10 samples:" in out
    assert "5 problems from" in err
    samples = (folder / "samples" / "digits.jsonl").read_bytes()
    assert main(command) == 0
    assert (folder / "samples" / "digits.jsonl").read_bytes() == samples
    capsys.readouterr()
    assert main(["grade", str(folder), "--again", "--k", "2", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert (re.search(r"digits +5 +2 +2 ", out) is not None, err) == (True, "")
    found = Finding.load(folder / "findings" / "pass-at-k-digits.json")
    assert found.protocol["decoding"]["max_new_tokens"] == 50
    assert found.protocol["model"] == model
    assert "| digits | 5 | 2 |" in (folder / "results.md").read_text()
    assert json.loads((folder / "run.json").read_text())["tasks"]["digits"]["n"] == 2


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path, model, capsys, monkeypatch) -> None:
    whole = TransformersGenerator.generate

    def interrupted(self, requests, settings):
        for i, answer in enumerate(whole(self, requests, settings)):
            if i == 3:
                raise KeyboardInterrupt
            yield answer

    command = ["eval", "--model", model, "--task", str(write_task(tmp_path)), "--output", str(tmp_path / "run")]
    monkeypatch.setattr(TransformersGenerator, "generate", interrupted)
    assert main([*command, "--device", "cpu"]) == 130
    err = capsys.readouterr().err
    assert "stopped: 3 of 20 samples of digits are kept in" in err
    assert "The same command goes on from there" in err
    monkeypatch.setattr(TransformersGenerator, "generate", whole)
    assert main([*command, "--device", "cpu"]) == 0
    assert "digits: 20 samples" in capsys.readouterr().out


def test_another_protocol_is_refused_and_fresh_begins_anew(tmp_path, model, capsys) -> None:
    command = [
        "eval",
        "--model",
        model,
        "--task",
        str(write_task(tmp_path)),
        "--output",
        str(tmp_path / "run"),
        "-n",
        "1",
    ]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--temperature", "0"]) == 1
    assert "temperature: the store has 1.0, this run 0.0" in capsys.readouterr().err
    assert main([*command, "--temperature", "0", "--fresh"]) == 0
    assert "set aside as digits.jsonl." in capsys.readouterr().err


def test_a_base_model_is_given_plain_prompts(tmp_path, capsys) -> None:
    model = tiny.model_folder(tmp_path / "base", chat=False)
    toml = write_task(tmp_path)
    toml.write_text(toml.read_text() + '[prompt]\nplain = "Q: {question} A:"\nchat = "{question}"\nstop = ["Q:"]\n')
    command = ["eval", "--model", str(model), "--task", str(toml), "--output", str(tmp_path / "run"), "-n", "1"]
    assert main(command) == 0
    found = Finding.load(tmp_path / "run" / "findings" / "pass-at-k-digits.json")
    assert found.protocol["prompt"] == "Q: {question} A:"
    assert found.protocol["decoding"]["stop"] == ["Q:"]
    capsys.readouterr()
    assert main([*command[:-2], "-n", "1", "--prompt", "chat", "--fresh"]) == 1
    assert "no chat template" in capsys.readouterr().err
    assert main(command) == 0  # the refused run left nothing in the way


def test_the_list_names_every_task(capsys) -> None:
    assert main(["eval", "--list"]) == 0
    out = capsys.readouterr().out
    for name in [
        "math500",
        "minerva",
        "olympiadbench",
        "aime24",
        "amc23",
        "arc-c",
        "gpqa",
        "humaneval",
        "humaneval+",
        "gsm8k",
    ]:
        assert re.search(rf"^{re.escape(name)} ", out, re.M), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "m"], "no task: give --task NAME"),
        (["--model", "m", "--task", "gsm8k,gsm8k"], "a task is named twice"),
        (["--task", "gsm8k"], "give --model FOLDER, or --server URL"),
        (["--model", "m", "--task", "gsm9k"], "did you mean 'gsm8k'"),
        (["--model", "m", "--task", "gsm8k", "--generator", "vlm"], "did you mean 'vllm'"),
        (["--model", "m", "--task", "gsm8k", "--prompt", "chatty"], "did you mean 'chat'"),
        (["--model", "m", "--task", "gsm8k", "--generator", "server"], "--server http://host:port"),
        (["--server", "http://x", "--generator", "vllm", "--task", "gsm8k"], "were both given"),
        (["--model", "m", "--task", "gsm8k", "-k", "one"], "--k one: expected whole numbers"),
        (["--model", "m", "--task", "gsm8k", "--data-dir", "/absent-folder"], "/absent-folder"),
        (["--server", "http://x", "--task", "TOML", "--server-extra", "{"], "--server-extra {: not JSON"),
        (["--server", "http://x", "--task", "TOML", "--server-extra", "3"], "expected a JSON object"),
        (["--model", "m", "--task", "TOML", "--workers", "0"], "--workers 0: expected at least 1"),
        (["--model", "m", "--task", "TOML", "--grade-seconds", "0"], "--grade-seconds 0: expected a time above 0"),
        (["--model", "m", "--task", "TOML", "--dtype", "fp32"], "--dtype fp32: unknown; did you mean"),
        (["--model", "m", "--task", "TOML", "--device", "tpux"], "expected a device of this machine: cpu"),
        (["--server", "x", "--task", "TOML"], "begins with http://"),
        (["--model", "./absent", "--task", "TOML"], "./absent: no such folder"),
    ],
)
def test_wrong_use_is_answered_in_one_line(arguments, words: str, tmp_path, capsys) -> None:
    toml = str(write_task(tmp_path))
    assert main(["eval", *(toml if a == "TOML" else a for a in arguments)]) == 1
    err = capsys.readouterr().err
    assert words in err
    assert err.splitlines()[-1].startswith("ranktuner eval: ")


def test_grading_a_folder_that_is_no_run(tmp_path, capsys) -> None:
    assert main(["grade", str(tmp_path)]) == 1
    assert "no run.json in it; expected the --output folder" in capsys.readouterr().err
