"""Reading run folders and Findings: what is half written, old, empty or wrong is said, not swallowed."""

from __future__ import annotations

import json
from pathlib import Path

import demo
import pytest

from ranktuner.errors import DataError
from ranktuner.report.sources import read


def test_a_folder_of_runs_gives_runs_and_their_findings(tmp_path: Path) -> None:
    demo.project(tmp_path / "runs")
    demo.noise().save(tmp_path / "runs" / "sft" / "noise.json")
    sources = read([tmp_path / "runs"])
    assert [run.name for run in sources.runs] == ["ranktuner(prior=prob)", "sft"]
    assert [len(run.metrics) for run in sources.runs] == [120, 120]
    assert len(sources.findings) == 18
    assert [found.run for found in sources.of("noise")] == [None, "sft"], "a Finding inside a run belongs to it"
    assert sources.notices == []


def test_two_runs_of_one_method_get_two_names(tmp_path: Path) -> None:
    demo.run(tmp_path / "a" / "seed0", "sft", 0, steps=3)
    demo.run(tmp_path / "a" / "seed1", "sft", 1, steps=3)
    demo.run(tmp_path / "b" / "seed1", "sft", 1, steps=3)
    names = [run.name for run in read([tmp_path]).runs]
    assert len(set(names)) == 3
    assert names[0] == "sft (seed0)"


def test_a_killed_run_is_shown_up_to_its_last_whole_line(tmp_path: Path) -> None:
    folder = demo.run(tmp_path / "run", "sft", 0, steps=5)
    (folder / "run.json").unlink()
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-30])
    sources = read([folder])
    assert len(sources.runs[0].metrics) == 4
    assert any("line 5 is cut off" in notice for notice in sources.notices)
    assert any("run.json is missing: the run is unfinished or was killed" in notice for notice in sources.notices)


def test_a_half_written_run_json_is_said(tmp_path: Path) -> None:
    folder = demo.run(tmp_path / "run", "sft", 0, steps=5)
    (folder / "run.json").write_text('{"config": {"meth')
    sources = read([folder])
    assert sources.runs[0].name == "run"
    assert any("run.json is half written" in notice for notice in sources.notices)


def test_a_step_written_again_after_resuming_counts_once(tmp_path: Path) -> None:
    folder = demo.run(tmp_path / "run", "sft", 0, steps=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "nll": 9.0}) + "\n" + json.dumps({"step": 4, "nll": 8.0}) + "\n")
    metrics = read([folder]).runs[0].metrics
    assert [record["step"] for record in metrics] == [1, 2, 3, 4]
    assert metrics[2]["nll"] == 9.0


def test_a_nan_in_the_metrics_is_a_gap(tmp_path: Path) -> None:
    folder = demo.run(tmp_path / "run", "sft", 0, steps=2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "nll": NaN}\n')
    assert read([folder]).runs[0].metrics[-1] == {"step": 3, "nll": None}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", r"line 2 is not JSON: expected one object a step"),
        ('{"loss": 1}', r"line 2 has no whole number 'step'"),
    ],
)
def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(DataError, match=message):
        read([tmp_path])


def test_an_older_finding_is_named_in_a_folder_and_refused_by_name(tmp_path: Path) -> None:
    demo.run(tmp_path / "run", "sft", 0, steps=2)
    old = tmp_path / "run" / "noise.json"
    old.write_text(demo.noise().to_json().replace('"schema": 1', '"schema": 0', 1))
    sources = read([tmp_path])
    assert sources.findings == []
    assert any("Finding of schema 0, this version reads 1" in notice for notice in sources.notices)
    with pytest.raises(DataError, match="Finding of schema 0, this version reads 1: make it again"):
        read([old])


def test_other_json_files_are_left_alone(tmp_path: Path) -> None:
    demo.run(tmp_path / "run", "sft", 0, steps=2)
    (tmp_path / "run" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "run" / "checkpoint-2").mkdir()
    (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").write_text('{"schema": 9, "kind": "not ours"}')
    sources = read([tmp_path])
    assert (len(sources.findings), sources.notices) == (0, [])


def test_an_empty_folder_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing to report on: expected metrics\.jsonl of a training run or Findings"):
        read([tmp_path])


def test_a_run_without_a_step_says_why(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(DataError, match="has not finished a step yet"):
        read([tmp_path])


def test_what_is_named_twice_is_shown_once(tmp_path: Path) -> None:
    demo.run(tmp_path / "runs" / "a", "sft", 0, steps=2)
    demo.run(tmp_path / "runs" / "b", "dft", 0, steps=2)
    noise = demo.noise().save(tmp_path / "runs" / "a" / "noise.json")
    sources = read([noise, tmp_path / "runs" / "b", tmp_path / "runs", noise, tmp_path / "runs" / "." / "a"])
    assert [run.name for run in sources.runs] == ["sft", "dft"]
    assert [found.run for found in sources.findings] == ["sft"], "read with the run that it belongs to"
    (tmp_path / "runs" / "b" / "old.json").write_text('{"schema": 0, "kind": "noise"}')
    with pytest.raises(DataError, match="Finding of schema 0"):
        read([tmp_path / "runs", tmp_path / "runs" / "b" / "old.json"])


def test_absent_paths_and_no_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder: name a run folder"):
        read([tmp_path / "nowhere"])
    with pytest.raises(DataError, match="name at least one run folder"):
        read([])


def test_a_file_that_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(DataError, match="the keys 'schema' and 'kind' are missing"):
        read([tmp_path / "x.json"])
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match=r"x\.png: not a Finding: not UTF-8 text; name a \.json"):
        read([tmp_path / "x.png"])


def test_paths_of_the_machine_do_not_reach_the_page(tmp_path: Path) -> None:
    demo.run(tmp_path / "deep" / "er" / "runs" / "a", "sft", 0, steps=2)
    assert read([tmp_path / "deep"]).runs[0].path == "er/runs/a"


@pytest.mark.parametrize(
    ("outcome", "notice"),
    [
        ("running", "the run is still going or was killed"),
        ("stopped", "the run did not finish (stopped)"),
        ("failed: NonFiniteError: sequence 3", "the run did not finish (failed: NonFiniteError: sequence 3)"),
    ],
)
def test_a_run_that_did_not_finish_says_so(tmp_path: Path, outcome: str, notice: str) -> None:
    folder = demo.run(tmp_path / "run", "sft", 0, steps=5)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "outcome": outcome}))
    sources = read([folder])
    assert len(sources.notices) == 1
    assert notice in sources.notices[0]
    assert len(sources.runs[0].metrics) == 5


def test_a_held_out_evaluation_alone_is_not_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "eval_nll": 2.0}\n{"step": 1, "nll": 1.5}\n{"step": 2, "nll": 1.0}\n{"step": 2, "eval_nll": 1.1}\n'
    )
    run = read([tmp_path]).runs[0]
    assert [record["step"] for record in run.metrics] == [0, 1, 2]
    assert run.metrics[2] == {"step": 2, "nll": 1.0, "eval_nll": 1.1}
    assert [end["nll"] for end in run.ends] == [1.5, 1.0]
