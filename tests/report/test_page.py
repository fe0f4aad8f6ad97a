"""The page as a file: escaped, self-contained, small, honest about what is missing; and its JSON."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import demo
import pytest

from ranktuner.cli import main
from ranktuner.errors import DataError, InputError
from ranktuner.findings import Finding
from ranktuner.report import page as page_module
from ranktuner.report import read, write
from ranktuner.report.embed import json_block, packed, policy, short
from ranktuner.report.page import build


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_file_points_nowhere(page: Path) -> None:
    tags = Tags(page.read_text())
    for tag, attributes in tags.tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, name, target)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
    assert not re.search(r"@import|url\((?!data:)", page.read_text().split("</style>")[0])


def test_every_script_of_the_page_is_in_its_policy_and_no_other(page: Path) -> None:
    html = page.read_text()
    scripts = re.findall(r"<script>(.*?)</script>", html, re.S)
    assert len(scripts) == 5
    wanted = policy(scripts)
    assert Tags(html).tags[3][1]["content"] == wanted
    assert "default-src 'none'" in wanted
    assert "unsafe-eval" not in wanted
    assert "'unsafe-inline'" not in wanted.split("style-src")[0]


ATTACK = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>\"'><svg onload=alert(1)>{{ 7*7 }}"


def attacked(folder: Path) -> Path:
    """A project whose every string of strangers is an attack: names, labels, titles, prompts, answers, file names."""
    name = ATTACK.replace("/", "∕")[:120]
    demo.run(folder / name, ATTACK, 0, steps=3)
    demo.evaluation(folder / name / "eval", ATTACK, 0.4, task="t")
    text = (folder / name / "eval" / "findings" / "samples-t.json").read_text()
    record = json.loads(text)
    for sample in record["numbers"]["samples"]:
        sample |= {"text": ATTACK, "answer": ATTACK, "why": ATTACK}
    for problem in record["numbers"]["problems"].values():
        problem |= {"prompt": ATTACK, "gold": ATTACK}
    (folder / name / "eval" / "findings" / "samples-t.json").write_text(json.dumps(record))
    for make in (
        demo.comparison,
        demo.noise,
        demo.tightness,
        demo.regimes,
        demo.inference_entropy,
        demo.inspect_data,
        demo.tokens,
    ):
        finding = make()
        numbers = json.loads(json.dumps(finding.numbers))
        poison(numbers)
        Finding(finding.kind, ATTACK, finding.n, numbers, finding.protocol, {"command": ATTACK, ATTACK: ATTACK}).save(
            folder / f"{finding.kind}.json"
        )
    Finding(ATTACK, ATTACK, 1, {ATTACK: ATTACK, "list": [ATTACK]}).save(folder / "strange.json")
    return folder


def poison(tree: Any) -> None:
    """Attack every free text of a Finding's numbers; what names its layout stays."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if (isinstance(value, str) and key in ("label", "id", "prompt", "reason", "title")) or (
                key == "name" and isinstance(value, str) and value in ("gsm8k", "math-500", "sft")
            ):
                tree[key] = ATTACK + str(value)
            else:
                poison(value)
    elif isinstance(tree, list):
        for value in tree:
            poison(value)


def test_no_text_of_strangers_becomes_markup(tmp_path: Path) -> None:
    attacked(tmp_path / "runs")
    write([tmp_path / "runs"], tmp_path / "report.html", title=ATTACK)
    html = (tmp_path / "report.html").read_text()
    tags = Tags(html)
    names = {tag for tag, _ in tags.tags}
    assert "img" not in names
    assert not [a for _, a in tags.tags if any(name.startswith("on") for name in a)]
    assert html.count("<script") == html.count("</script>") == 5 + 3
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", html)[0], "templates in the data must not run"
    assert ATTACK.replace("{{ 7*7 }}", "") not in html


@pytest.mark.browser
def test_an_attack_through_every_text_does_not_run(driver: Any, tmp_path: Path) -> None:
    import time

    attacked(tmp_path / "runs")
    write([tmp_path / "runs"], tmp_path / "report.html", title=ATTACK)
    driver.get_log("browser")
    driver.get((tmp_path / "report.html").as_uri())
    end = time.monotonic() + 20
    while driver.execute_script("return document.querySelectorAll('.plot:not([data-drawn])').length"):
        assert time.monotonic() < end
        time.sleep(0.05)
    driver.execute_script("""
        for (const d of document.querySelectorAll('details')) d.open = true;
        document.querySelector('.t').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));""")
    assert driver.execute_script("return window.pwned") is None
    assert driver.find_elements("css selector", "main img, main svg[onload]") == []
    assert driver.get_log("browser") == []


def test_json_in_a_script_cannot_end_it_and_comes_back_the_same() -> None:
    value = {"a": ["</script>", "<!--", "&amp;", "\u2028", "\ud800", "é世"]}
    block = json_block(value)
    assert not re.search("[<>&\u2028]", block)
    assert json.loads(block) == value


def test_packing_keeps_every_row() -> None:
    rows = [{"x": i / 7, "name": f"n{i}", "none": None} for i in range(5)]
    spec = packed({"layer": [{"data": {"values": rows}, "axis": {"values": [1, 2, 3]}}, {"data": {"values": [{}]}}]})
    columns = spec["layer"][0]["data"]["columns"]
    assert columns["name"] == ["n0", "n1", "n2", "n3", "n4"]
    assert columns["x"] == [0, 0.142857, 0.285714, 0.428571, 0.571429]
    assert spec["layer"][0]["axis"] == {"values": [1, 2, 3]}
    assert spec["layer"][1] == {"data": {"values": [{}]}}
    assert short(3.0) == 3
    assert isinstance(short(3.0), int)


def test_the_json_holds_runs_and_findings_whole(project: Path, record: Any) -> None:
    assert [run["name"] for run in record["runs"]] == ["ranktuner(prior=prob)", "sft"]
    assert len(record["runs"][0]["metrics"]) == 120
    kinds = [finding["kind"] for finding in record["findings"]]
    assert sorted(set(kinds)) == sorted(
        [
            "comparison",
            "noise",
            "tightness",
            "regimes",
            "gradients",
            "surface",
            "inference-entropy",
            "tokens",
            "inspect-data",
            "pass-at-k",
            "samples",
        ]
    )
    stored = Finding.load(project / "findings" / "noise.json")
    assert next(f for f in record["findings"] if f["kind"] == "noise")["numbers"] == stored.numbers


def test_evaluations_are_named_after_the_runs_that_they_judge(record: Any) -> None:
    names = {f["run"] for f in record["findings"] if f["kind"] == "pass-at-k"}
    assert names == {"ranktuner(prior=prob)", "sft"}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    folder = demo.run(tmp_path / "run", "sft", 0, steps=5)
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-30])
    (folder / "noise.json").write_text(demo.noise().to_json().replace('"schema": 1', '"schema": 0', 1))
    page = build(read([folder]))
    assert "line 5 is cut off" in page.html
    assert "Finding of schema 0, this version reads 1" in page.html
    assert "Not part of this report: evaluation (ranktuner eval)" in page.html
    assert len(page.notices) == 2


def test_a_page_over_the_limit_is_refused_with_a_way_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "LIMIT", 500_000)
    with pytest.raises(DataError, match=r"the page would have 1\.\d MB, the limit is 0 MB: report on fewer runs"):
        build(read([project]))


def test_a_large_project_fits(tmp_path: Path) -> None:
    """Sixteen thousand tokens and long runs: what the page cannot hold stays in the JSON, with its counts."""
    demo.project(tmp_path / "runs", repeat_tokens=60)
    demo.run(tmp_path / "runs" / "long", "dft", 3, steps=2000)
    page = write([tmp_path / "runs"], tmp_path / "report.html")
    assert len(page.html.encode()) < 4_000_000
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["token_view"]["rows_found"] == 360
    assert 100 < record["token_view"]["shown_rows"] < 360
    assert len(next(r for r in record["runs"] if r["name"] == "dft")["metrics"]) == 2000


def test_a_kind_without_a_figure_is_a_table(tmp_path: Path) -> None:
    Finding("speed", "Speed of the head", 3, {"ratio": 0.987, "runs": [1, 2], "note": "<b>"}).save(
        tmp_path / "speed.json"
    )
    html = build(read([tmp_path / "speed.json"])).html
    assert "Speed of the head" in html
    assert '<data value="0.987">0.987</data>' in html
    assert "&lt;b&gt;" in html


ALL = {
    "noise": demo.noise, "tightness": demo.tightness, "regimes": demo.regimes, "tokens": demo.tokens,
    "gradients": demo.gradients, "inference-entropy": demo.inference_entropy, "surface": demo.surface,
    "inspect-data": demo.inspect_data,
}  # fmt: skip


@pytest.mark.parametrize("kind", [*ALL, "pass-at-k", "samples"])
def test_numbers_in_another_layout_are_named_and_left_out(kind: str, tmp_path: Path) -> None:
    good = demo.noise() if kind != "noise" else demo.surface()
    good.save(tmp_path / "good.json")
    numbers = copy.deepcopy(ALL[kind]().numbers) if kind in ALL else {}
    # One level down, where a check of the first keys alone would not look.
    for one in [v[0] for v in numbers.values() if isinstance(v, list) and v and isinstance(v[0], dict)] or [numbers]:
        one.clear()
    Finding(kind, "old", 1, numbers, {"unit": "tokens"}).save(tmp_path / "bad.json")
    page = write([tmp_path], tmp_path / "report.html")
    notices = [notice for notice in page.notices if "numbers do not have the expected layout" in notice]
    assert len(notices) == 1
    assert f"bad.json: a {kind!r} Finding" in notices[0]
    assert f"fig-{good.kind}" in page.html
    with pytest.raises(DataError, match=r"nothing to report on: .*bad\.json"):
        write([tmp_path / "bad.json"], tmp_path / "alone.html")


def test_two_findings_of_a_kind_have_two_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        demo.run(tmp_path / name, f"dft-{name}", 0, steps=2)
        demo.noise().save(tmp_path / name / "noise.json")
    html = build(read([tmp_path])).html
    assert html.count('id="fig-noise"') == html.count('id="fig-noise-2"') == 1
    assert "Which scores fall for noise: dft-a" in html
    ids = [a["id"] for _, a in Tags(html).tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_the_name_of_the_output_is_checked(project: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.html"):
        write([project], tmp_path / "report.json")


def test_the_command_line(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(project), "-o", str(tmp_path / "out" / "r.html"), "--title", "Mine"]) == 0
    assert "r.html (1." in capsys.readouterr().out
    assert "<h1>Mine</h1>" in (tmp_path / "out" / "r.html").read_text()
    assert json.loads((tmp_path / "out" / "r.json").read_text())["title"] == "Mine"
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "no such file or folder" in capsys.readouterr().err
    assert main(["figures", str(project), "--only", "surface", "--format", "svg", "-o", str(tmp_path / "f")]) == 0
    assert (tmp_path / "f" / "surface.svg").exists()
