"""The sample browser's data: fair shares where not all fit, problems stored once, honest counts."""

from __future__ import annotations

import json
from pathlib import Path

import demo

from ranktuner.findings import Finding
from ranktuner.report.samples import sample_browser
from ranktuner.report.sources import Located


def located(tmp_path: Path) -> list[Located]:
    found = []
    for name in ("sft", "ranktuner"):
        demo.evaluation(tmp_path / name, name, 0.3)
        found.append(Located(Finding.load(tmp_path / name / "findings" / "samples-gsm8k.json"), name, name))
    return found


def test_all_samples_with_their_grades(tmp_path: Path) -> None:
    found = located(tmp_path)
    browser = sample_browser(found)
    assert browser is not None
    assert (browser["shown"], browser["found"]) == (80, 800)
    assert [group["run"] for group in browser["groups"]] == ["sft", "ranktuner"]
    first = found[0].finding.numbers["samples"][0]
    item = next(item for item in browser["items"] if item["g"] == 0)
    assert (item["verdict"], item["answer"], item["why"]) == (first["verdict"], first["answer"], first["why"])
    problem = browser["groups"][0]["problems"][item["problem"]]
    assert problem == found[0].finding.numbers["problems"][item["problem"]]


def test_a_small_budget_is_shared_between_models(tmp_path: Path) -> None:
    browser = sample_browser(located(tmp_path), budget=4000)
    assert browser is not None
    shares = [sum(item["g"] == place for item in browser["items"]) for place in (0, 1)]
    assert min(shares) >= 5
    assert abs(shares[0] - shares[1]) <= 3
    assert browser["shown"] == len(browser["items"]) < 80
    assert len(json.dumps(browser)) < 6000


def test_nothing_to_browse(tmp_path: Path) -> None:
    assert sample_browser([]) is None
    empty = Finding("samples", "none", 0, {"task": "t", "found": 0, "shown": 0, "problems": {}, "samples": []})
    assert sample_browser([Located(empty, "x", None)]) is None


def test_control_characters_are_pictures(tmp_path: Path) -> None:
    found = located(tmp_path)
    numbers = json.loads(json.dumps(found[0].finding.numbers))
    numbers["samples"][0] |= {"text": "a\x00\u202eb", "answer": "\x1b[2J"}
    finding = Finding("samples", "t", 1, {**numbers, "samples": numbers["samples"][:1]})
    browser = sample_browser([Located(finding, "x", "sft")])
    assert browser is not None
    assert (browser["items"][0]["text"], browser["items"][0]["answer"]) == ("a␀⟨RLO⟩b", "␛[2J")
