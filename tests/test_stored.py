"""What the front page takes from stored results: numbers as they are stored, and nothing where nothing is stored."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from ranktuner.findings import Finding

ROOT = Path(__file__).parents[1]


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"by_path_{path.stem}", path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


stored = module(ROOT / "docs" / "stored.py")
made_up = module(ROOT / "tests" / "report" / "demo.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's documents with one stored comparison."""
    monkeypatch.setattr(stored, "ROOT", tmp_path)
    monkeypatch.setattr(stored, "IMAGES", tmp_path / "docs" / "images")
    place = tmp_path / "docs" / "results" / "demo"
    made_up.comparison().save(place / "comparison.json")
    return place


def test_what_is_not_stored_is_left_out(tmp_path: Path) -> None:
    assert stored.demo_part(tmp_path) == stored.comparison_part(tmp_path) == stored.run_part(tmp_path, "x") == ""
    assert stored.ratios_part(tmp_path) == ""
    assert stored.draw(tmp_path) is None
    assert not stored.stale_figure(tmp_path)


def test_a_part_is_put_between_its_marks_again_and_again() -> None:
    page = "a\n<!-- demo -->\nold\n<!-- end of demo -->\nb\n"
    once = stored.filled(page, {"demo": "new\n"}, "page")
    assert once == "a\n<!-- demo -->\nnew\n<!-- end of demo -->\nb\n"
    assert stored.filled(once, {"demo": "new\n"}, "page") == once
    with pytest.raises(ValueError, match="page: expected <!-- other --> and <!-- end of other --> once each"):
        stored.filled(page, {"other": ""}, "page")


def test_the_tables_hold_the_stored_numbers(folder: Path) -> None:
    finding = Finding.load(folder / "comparison.json")
    (table,) = finding.numbers["tables"]
    ours = next(row for row in table["rows"] if row["label"] == "Ours")
    text = stored.comparison_part(folder)
    (line,) = [line for line in text.splitlines() if line.startswith("| `Ours`")]
    at, over, best = ours["pass_at_k"][0], ours["to_original"][0], ours["to_best"][0]
    assert f"{100 * at['value']:.1f} % ({100 * at['low']:.1f} to {100 * at['high']:.1f})" in line
    assert f"{100 * over['value']:+.1f} ({100 * over['low']:+.1f} to {100 * over['high']:+.1f})" in line
    assert f"{100 * best['value']:+.1f}" in line
    assert f"± {100 * at['seed_deviation']:.1f}" in line
    assert "Failed: talr at train: out of memory" in text
    said = stored.run_part(folder, "{rows} methods with {seeds} trainings each.\n")
    assert said == f"4 methods with 2 trainings each.\n{text}"


def test_the_front_page_prints_what_the_command_prints(folder: Path) -> None:
    text = stored.demo_part(folder)
    assert "org/tiny-model on gsm8k: 12 problems" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "minutes" not in text, "no times are stored"
    calls = [{"seconds": 402.0, "cells_made": 13}, {"seconds": 6.4, "cells_made": 0}]
    hardware = {"cpu": "A CPU", "cores": 2, "gpu": False}
    versions = {"torch": "2.13.0", "transformers": "5.23.0"}
    origin = {"hardware": hardware, "versions": versions}
    Finding("demo-times", "t", 13, {"calls": calls, "cells": []}, {}, origin).save(folder / "times.json")
    said = stored.demo_part(folder).replace("\n", " ")
    assert "The first run took 6.7 minutes on 2 cores (A CPU, torch 2.13.0, transformers 5.23.0); the second" in said
    assert "6 seconds" in said


def test_the_figure_says_what_it_was_drawn_from(folder: Path) -> None:
    assert stored.stale_figure(folder)
    path = stored.draw(folder)
    assert path is not None
    assert not stored.stale_figure(folder)
    assert "<svg" in path.read_text(encoding="utf-8")
    again = made_up.comparison(ks=(1,))
    again.save(folder / "comparison.json")
    assert stored.stale_figure(folder)


def test_ratios_are_those_of_the_files_that_are_there(tmp_path: Path) -> None:
    case = {"shape": "M", "dtype": "bf16", "ratios": {"ranktuner / dense sft": 0.4881, "peak memory / dense": 0.0885}}
    head = {"numbers": {"cases": [case]}, "provenance": {"hardware": {"device": "A GPU"}}}
    (tmp_path / "head_h200.json").write_text(json.dumps(head))
    text = stored.ratios_part(tmp_path)
    assert "| 0.49 x the time, 0.09 x the peak memory | [A GPU](benchmarks/results/head_h200.json) |" in text
    assert "TRL" not in text
    pair = {"times_as_fast_by_clock": 2.314, "share_of_peak_memory": 0.759}
    training = {
        "against": {"trl": pair, "dense": {**pair, "times_as_fast_by_clock": 1.4}},
        "settings": {"model": "M"},
        "hardware": {"cpu": "C", "threads": 2},
    }
    (tmp_path / "train_vs_trl.json").write_text(json.dumps(training))
    text = stored.ratios_part(tmp_path)
    assert "| TRL's SFTTrainer as it comes | 2.31 x the tokens a second, 0.76 x the peak memory | [C, 2 cores]" in text
    assert "same batches" not in text


def test_a_demo_is_stored_with_the_form_of_its_answers(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "demo"
    cells = [("eval", "original", 0), *((stage, "sft", seed) for seed in (0, 1) for stage in ("train", "eval"))]
    listed = []
    for stage, label, seed in cells:
        place = tmp_path / "cells" / f"{stage}-{label}-{seed}"
        listed.append({"stage": stage, "label": label, "folder": str(place)})
        (place / "samples").mkdir(parents=True)
        (place / "run").mkdir()
        texts = ["\\boxed{4}", "\\boxed{}", "4"] if label == "sft" else ["4"]
        lines = [{"store": 1}, *({"text": text} for text in texts)]
        (place / "samples" / "problems.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        steps = [{"step": i, "nll": 7.0 - i + 2 * seed} for i in range(1, 7)]
        (place / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    made_up.comparison().save(run / "findings" / "comparison.json")
    (run / "times.json").write_text("{}")
    (run / "compare.json").write_text(json.dumps({"cells": listed}))
    target = tmp_path / "stored"
    stored.store(run, target)
    assert sorted(path.name for path in target.iterdir()) == ["answers.json", "comparison.json", "times.json"]
    original, sft = Finding.load(target / "answers.json").numbers["rows"]
    assert original == {"label": "original", "samples": 1, "boxed": 0, "empty": 0}
    assert sft == {"label": "sft", "samples": 6, "boxed": 4, "empty": 2, "nll_first": 7.0, "nll_last": 4.0}
    assert "| `sft` | 7.00 | 4.00 | 4 of 6 | 2 |" in stored.answers_part(target)
    assert stored.answers_part(tmp_path) == ""


FAST = ("sft", "eaft", "ranktuner(prior=uniform)")
SLOW = ("talr", "ranktuner(prior=prob)", "dft")
DEMO, LARGER, LONGER, WORDS = (ROOT / "docs" / "results" / name for name in ("demo", "larger", "longer", "words"))


def forms(place: Path) -> dict[str, Any]:
    """What the answers of the stored comparison's rows look like."""
    return {row["label"]: row for row in Finding.load(place / "answers.json").numbers["rows"]}


def scores(place: Path, k: int) -> dict[str, float]:
    """pass@k of the stored comparison's rows on the generated problems, in percent."""
    table = Finding.load(place / "comparison.json").numbers["tables"][0]
    return {row["label"]: 100 * at["value"] for row in table["rows"] for at in row["pass_at_k"] if at["k"] == k}


def test_what_the_results_say_of_the_demo_is_what_is_stored() -> None:
    (table,) = Finding.load(DEMO / "comparison.json").numbers["tables"]
    rows = {row["label"]: row for row in table["rows"]}
    assert table["problems"] == 64
    original, *trained = rows.values()
    assert original["truncated"] > 120, "nearly all of them were cut off"
    assert all(one["low"] > 0 for row in trained for one in row["to_original"]), "every interval lies above 0"
    apart = {row["label"]: one["to"] for row in trained for one in row["to_best"] if one["k"] == 1 and one["high"] < 0}
    assert apart == {"ranktuner(prior=uniform)": "sft"}
    assert not any(one["low"] > 0 for row in trained for one in row["to_best"])
    answers = forms(DEMO)
    for label in ("sft", "dft", "ranktuner(prior=uniform)", "ranktuner(prior=prob)"):
        assert answers[label]["boxed"] > 0.95 * answers[label]["samples"], "took up the form"
        assert answers[label]["empty"] == 0
        assert round(answers[label]["nll_first"], 2) == 1.28
    assert [round(answers[label]["nll_last"], 2) for label in ("sft", "ranktuner(prior=uniform)")] == [0.18, 0.23]
    for label in ("dft", "ranktuner(prior=prob)"):
        assert answers[label]["nll_last"] > 1
        assert rows[label]["tokens_per_sample"] < rows["sft"]["tokens_per_sample"] - 5, "answer more briefly"
    assert round(rows["dft"]["pass_at_k"][0]["value"] - rows["sft"]["pass_at_k"][0]["value"], 2) == -0.01


def test_the_demo_took_at_most_eight_minutes_and_then_seconds() -> None:
    first, second = Finding.load(DEMO / "times.json").numbers["calls"]
    assert first["seconds"] <= 480
    assert (second["cells_made"], second["seconds"] < 30) == (0, True)


def test_what_the_results_say_of_the_larger_run_is_what_is_stored() -> None:
    one, eight, answers = scores(LARGER, 1), scores(LARGER, 8), forms(LARGER)
    assert {label: round(value) for label, value in one.items()} == {
        "original": 0,
        "sft": 32,
        "eaft": 24,
        "talr": 20,
        "ranktuner(prior=uniform)": 20,
        "ranktuner(prior=prob)": 18,
        "dft": 14,
    }
    (table,) = Finding.load(LARGER / "comparison.json").numbers["tables"]
    rows = {row["label"]: row for row in table["rows"]}
    assert all(one["high"] < 0 for label in (*SLOW, *FAST[1:]) for one in rows[label]["to_best"] if one["k"] == 1)
    seeds = {label: [100 * s["value"] for s in rows[label]["pass_at_k"][0]["seeds"]] for label in (*FAST, *SLOW)}
    assert all(len(found) == 3 and 0.5 < max(found) - min(found) < 6.5 for found in seeds.values())
    assert min(seeds["sft"]) > max(max(found) for label, found in seeds.items() if label != "sft")
    assert all(answers[label]["nll_last"] < 0.5 and 58 < eight[label] < 73 for label in FAST)
    assert all(answers[label]["nll_last"] > 0.95 and 34 < eight[label] < 41 for label in SLOW)
    assert answers["dft"]["nll_last"] > answers["dft"]["nll_first"], "it rose"


def test_what_the_results_say_of_eight_times_the_steps_is_what_is_stored() -> None:
    one, eight = scores(LONGER, 1), scores(LONGER, 8)
    order = [*FAST, *SLOW, "original"]
    assert sorted(one, key=lambda label: -one[label]) == order
    assert [round(one["sft"] - one[label]) for label in FAST[1:]] == [3, 5]
    assert max(eight[label] for label in FAST) - min(eight[label] for label in FAST) < 1, "level at pass@8"
    assert [round(eight[label] - one[label]) for label in ("dft", "sft")] == [12, 20]
    answers = forms(LONGER)
    assert all(row["empty"] == 0 for label, row in answers.items() if label != "original")
    assert answers["dft"]["nll_last"] > answers["dft"]["nll_first"], "it rose"
    assert all(0.31 < answers[label]["nll_last"] < 0.35 for label in FAST)


def test_what_the_results_say_of_other_words_is_what_is_stored() -> None:
    here, there = scores(WORDS, 1), scores(LONGER, 1)
    assert [round(here[label]) for label in ("eaft", "sft", "ranktuner(prior=uniform)")] == [10, 57, 54]
    assert [round(there[label] - here[label]) for label in ("eaft", "sft", "ranktuner(prior=uniform)")] == [59, 15, 12]
    answers = forms(WORDS)
    assert [round(100 * answers[label]["empty"] / answers[label]["boxed"]) for label in ("eaft", "talr")] == [85, 55]
    for label in ("dft", "ranktuner(prior=prob)"):
        assert answers[label]["boxed"] < 0.5 * answers[label]["samples"], "no box in more than half"
    table, gsm8k = Finding.load(WORDS / "comparison.json").numbers["tables"]
    (talr,) = [row for row in table["rows"] if row["label"] == "talr"]
    assert [round(100 * one["value"]) for one in talr["pass_at_k"][0]["seeds"]] == [17, 61, 4]
    told = {row["label"] for row in gsm8k["rows"] for one in row["to_best"] if one["k"] == 1 and one["high"] < 0}
    assert told == {"dft", "eaft", "talr"}
