"""The page's comparison: marks that say what the interval says, nothing hidden, and words about what it cannot show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import demo
import pytest

from ranktuner.findings import Finding
from ranktuner.report import build, read, write
from ranktuner.report.comparison import mark, reading, tables
from ranktuner.report.figures.comparison import figures, place, side
from ranktuner.report.writing import interval, num


def text(markup: Any) -> str:
    """What a reader sees, and what a screen reader hears."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", str(markup))).strip()


@pytest.fixture(scope="module")
def finding() -> Finding:
    return Finding.from_json(demo.comparison().to_json())


def row(finding: Finding, label: str) -> Any:
    return next(one for one in finding.numbers["tables"][0]["rows"] if one["label"] == label)


def lines(finding: Finding, title: str) -> dict[str, list[str]]:
    """First cell -> the others, of the table with this title."""
    (table,) = (table for name, table, _ in tables(finding) if name == title)
    return {text(line[0]): [text(cell) for cell in line[1:]] for line in table.rows}


@pytest.mark.parametrize(
    ("low", "high", "where", "heard"),
    [
        (0.01, 0.2, "above", "the interval is above 0"),
        (-0.2, -0.01, "below", "the interval is below 0"),
        (-0.1, 0.1, "open", "the interval includes 0"),
        (0.0, 0.1, "open", "the interval includes 0"),
        (-0.1, 0.0, "open", "the interval includes 0"),
        # It would be written +0.0, and still lies above.
        (0.0001, 0.1, "above", "the interval is above 0"),
    ],
)
def test_the_mark_is_of_the_exact_interval(low: float, high: float, where: str, heard: str) -> None:
    one = {"low": low, "high": high}
    assert side(one) == where
    assert f'class="mark {where}"' in mark(one)
    assert heard in mark(one)


def test_differences_are_signed_points() -> None:
    shown = [text(num(x, "difference")) for x in (0.125, -0.0312, 0.0, -0.00001)]
    assert shown == ["+12.5", "−3.1", "0.0", "0.0"]
    assert text(interval(-0.02, 0.034, "difference")) == "−2.0 to +3.4"


def test_every_row_stands_beside_the_original_and_the_best_other(finding: Finding) -> None:
    shown = lines(finding, "tiny-model on gsm8k, pass@1")
    names = list(shown)
    assert names[0] == "original"
    assert shown["original"][1:3] == ["–", "–"]
    sft, ours = row(finding, "sft"), row(finding, "Ours")
    own, to_original, to_best, seeds, paper = shown["Ours"]
    at = ours["pass_at_k"][0]
    assert own == f"{100 * at['value']:.1f} % {100 * at['low']:.1f} – {100 * at['high']:.1f} %"
    assert to_original.startswith("▲the interval is above 0+")
    assert f"{100 * ours['to_original'][0]['value']:+.1f}" in to_original
    assert ours["to_best"][0]["to"] == "sft"
    assert to_best.endswith("over sft")
    assert sft["to_best"][0]["to"] == "Ours"
    assert len(seeds.split(" ±")[0].split(", ")) == 2
    assert paper == "38.2 %"
    assert shown["sft"][4] == "31.4 %"


def test_what_failed_stands_first_and_in_its_rows(finding: Finding) -> None:
    (title, table, note), *_ = tables(finding)
    assert title == "Cells that failed"
    assert len(table.rows) == 3
    assert "no space left on device <disk>" in table.rows[0][4]
    assert "tries them again" in note
    shown = lines(finding, "tiny-model on gsm8k, pass@1")
    assert "dft seed 1 failed at eval" in shown
    assert shown["talr seed 0 failed at train seed 1 failed at train"] == ["–"] * 5
    assert any("Some cells failed" in one for one in reading(finding))


def test_the_verdicts_of_all_samples_are_counted(finding: Finding) -> None:
    shown = lines(finding, "What became of the samples")
    verdicts = row(finding, "sft")["verdicts"]
    assert shown["sft"][:2] == ["12", "192"]
    assert [int(cell) for cell in shown["sft"][2:8]] == [
        verdicts[name] for name in ("correct", "wrong", "unparsed", "truncated", "timeout", "error")
    ]
    assert sum(verdicts.values()) == 192


def test_it_says_what_the_intervals_do_not_show(finding: Finding) -> None:
    said = text(" ".join(reading(finding)))
    for part in (
        "cannot tell the two rows apart. That is not the same as being equal",
        "chosen by its result on these same problems",
        "about one in twenty",
        "The samples of all trainings of a row are pooled",
    ):
        assert part in said
    numbers = json.loads(json.dumps(finding.numbers))
    for one in numbers["tables"][0]["rows"]:
        one["seeds"] = one["seeds"][:1]
    single = Finding(finding.kind, finding.title, finding.n, numbers)
    assert "Every row was trained once" in " ".join(reading(single))


def test_a_row_that_was_cut_off_or_solved_nothing_is_not_taken_at_its_word(finding: Finding) -> None:
    before = text(" ".join(reading(finding)))
    assert "no width" not in before
    assert "cut off" not in before
    numbers = json.loads(json.dumps(finding.numbers))
    numbers["tables"][0]["rows"][0]["pass_at_k"][0] |= {"value": 0.0, "low": 0.0, "high": 0.0}
    numbers["tables"][0]["rows"][0]["truncated"] = 43
    said = text(" ".join(reading(Finding(finding.kind, finding.title, finding.n, numbers))))
    assert "that is no certainty: a bootstrap draws only from what was seen" in said
    assert "original on gsm8k: 43 of 96 samples were cut off at the limit of tokens" in said


def test_several_tasks_have_an_overview_like_the_papers(finding: Finding) -> None:
    found = demo.comparison(tasks=("gsm8k", "math500"))
    titles = [title for title, _, _ in tables(found)]
    assert titles[1:6] == [
        "tiny-model: all tasks",
        "tiny-model on gsm8k, pass@1",
        "tiny-model on gsm8k, pass@8",
        "tiny-model on math500, pass@1",
        "tiny-model on math500, pass@8",
    ]
    overview = next(table for title, table, _ in tables(found) if title.endswith("all tasks"))
    assert list(overview.head) == ["row", "gsm8k, pass@1", "math500, pass@1"]
    assert titles.count("tiny-model: all tasks") == 1
    assert "tiny-model: all tasks" not in [title for title, _, _ in tables(finding)]


def test_one_k_is_points_and_several_are_curves(finding: Finding) -> None:
    assert [one.id for one in figures(finding)] == ["comparison-pass-at-k", "comparison-differences"]
    flat = figures(demo.comparison(ks=(1,)))
    assert [one.id for one in flat] == ["comparison-solved", "comparison-differences"]
    forest = flat[1]
    assert [one.title for one in forest.panels] == [
        "tiny-model on gsm8k, pass@1: less the original",
        "tiny-model on gsm8k, pass@1: less the best other",
    ]
    # Three rows were trained and evaluated; each has one difference of either kind.
    assert forest.table is not None
    assert len(forest.table.rows) == 6


def test_a_row_has_one_colour_in_every_panel_and_a_stand_in_says_so(finding: Finding) -> None:
    (curves, _) = figures(finding)
    assert curves.key is not None
    assert list(curves.key.names) == ["original", "sft", "dft", "Ours"], "talr has no numbers, so no colour"
    assert curves.key.names["sft"] == 1
    colours = {name: f"var(--c{slot})" for name, slot in curves.key.names.items()}
    (lines,) = [layer for layer in curves.panels[0].spec["layer"] if "strokeDash" in layer["encoding"]]
    scale = lines["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == colours
    small = {"model": "tiny/Qwen3-8B", "task": "gsm8k"}
    assert [place(one) for one in (small, {**small, "model": "Qwen/Qwen3-8B"})] == [
        "tiny/Qwen3-8B on gsm8k",
        "Qwen3-8B on gsm8k",
    ]


def test_evaluations_that_are_compared_are_not_shown_twice(tmp_path: Path) -> None:
    demo.compared(tmp_path / "cells").save(tmp_path / "comparison.json")
    html = build(read([tmp_path])).html
    assert '<section id="comparison"' in html
    assert '<section id="results"' not in html
    assert "evaluation (ranktuner eval)" not in html
    assert "<h1>Four ways to weigh a token</h1>" in html
    demo.evaluation(tmp_path / "another", "models/mine/model", 0.4)
    both = build(read([tmp_path])).html
    assert '<section id="results"' in both
    assert "mine" in both


def test_two_comparisons_on_a_page_are_told_apart(tmp_path: Path) -> None:
    demo.comparison().save(tmp_path / "a.json")
    second = demo.comparison()
    Finding(second.kind, "A second one", second.n, second.numbers).save(tmp_path / "b.json")
    page = build(read([tmp_path]))
    assert page.notices == []
    assert "A second one: tiny-model on gsm8k, pass@1" in page.html
    ids = re.findall(r' id="([^"]+)"', page.html.split("<script")[0])
    assert len(ids) == len(set(ids))


def test_nothing_finished_still_says_what_failed(tmp_path: Path) -> None:
    whole = demo.comparison()
    numbers = {**whole.numbers, "tables": []}
    Finding(whole.kind, whole.title, 0, numbers).save(tmp_path / "a.json")
    page = build(read([tmp_path]))
    assert page.notices == []
    assert "out of memory" in page.html


def test_a_broken_layout_is_a_notice(tmp_path: Path) -> None:
    Finding("comparison", "broken", 1, {"tables": [{"model": "m"}], "failed": []}).save(tmp_path / "a.json")
    demo.surface().save(tmp_path / "surface.json")
    (notice,) = build(read([tmp_path])).notices
    assert "a 'comparison' Finding whose numbers do not have the expected layout" in notice


@pytest.mark.browser
def test_a_reader_sees_the_marks_in_both_themes_and_the_curves_are_drawn(driver: Any, tmp_path: Path) -> None:
    import time

    demo.compared(tmp_path / "runs").save(tmp_path / "runs" / "comparison.json")
    write([tmp_path / "runs"], tmp_path / "report.html")
    driver.get_log("browser")
    driver.get((tmp_path / "report.html").as_uri())
    end = time.monotonic() + 20
    while driver.execute_script("return document.querySelectorAll('.plot:not([data-drawn=yes])').length"):
        assert time.monotonic() < end
        time.sleep(0.05)
    seen = {}
    for theme in ("light", "dark"):
        driver.execute_script(f"document.querySelector('#theme input[value={theme}]').click()")
        seen[theme] = driver.execute_script("""
            const of = name => getComputedStyle(document.querySelector('td .mark.' + name)).color;
            return [of('above'), of('below'), of('open')]""")
        assert len(set(seen[theme])) == 3
    assert set(seen["light"]).isdisjoint(seen["dark"])
    heard = driver.execute_script("return [...document.querySelectorAll('td .mark .sr')].map(n => n.textContent)")
    assert {"the interval is above 0", "the interval includes 0"} <= set(heard)
    assert driver.get_log("browser") == []
