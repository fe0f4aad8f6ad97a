"""The tables of docs/diagnostics.md say what the stored results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETS = {"GSM8K test": "gsm8k", "MATH-500": "math500", "Minerva": "minerva"}
SCORES = {"entropy H": "entropy", "-ln p": "probability", "1/I": "inverse-indicator"}


def stored(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))["numbers"]


def rows_after(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of the document, code marks taken off."""
    lines = (ROOT / "docs/diagnostics.md").read_text(encoding="utf-8").split(f"## {heading}", 1)[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return [table[0], *table[2:]]


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def test_noise() -> None:
    numbers = stored("docs/results/diagnostics/noise.json")
    by_name = {score["name"]: score for score in numbers["scores"]}
    told = set()
    for label, recall, precision, hits in rows_after("noise:")[1:]:
        if label.startswith("chance"):
            assert recall == percent(numbers["chance"]["token_recall"])
            assert precision == percent(numbers["chance"]["token_precision"])
            told.add("sft")
            continue
        names = [SCORES.get(name, name) for name in label.removeprefix("weight of ").split(", ")]
        for name in names:
            score = by_name[name]
            for said, key in ((recall, "token_recall"), (precision, "token_precision")):
                one = score[key]
                assert said.split(" (")[0] == percent(one["mean"])
                if "(" in said:
                    assert said.split("(")[1].rstrip(")") == f"{100 * one['low']:.0f}-{100 * one['high']:.0f}"
            if score["kind"] == "score":
                assert hits == ", ".join(f"{hit:.0f}" for hit in score["sequence_hits"])
            else:
                assert hits in (percent(score["sequence_hit"]["mean"]), f"{score['sequence_hit']['mean']:.0f}")
            told.add(name)
    assert told == set(by_name)


def test_noise_by_length_and_place() -> None:
    text = " ".join((ROOT / "docs/diagnostics.md").read_text(encoding="utf-8").split())
    by_name = {score["name"]: score for score in stored("docs/results/diagnostics/noise-split.json")["scores"]}

    def shares(name: str, key: str) -> list[str]:
        return [f"{100 * one['token_recall']:.0f}" for one in by_name[name][key]]

    said = {}
    for name, words in (("probability", "-ln p is"), ("inverse-indicator", "1/I"), ("entropy", "entropy")):
        *first, last = shares(name, "recall_by_length")
        said[name] = f"{words} {', '.join(first)} and {last} %"
    assert "the recall of {probability}, that of {inverse-indicator}, that of {entropy}".format(**said) in text
    first, _, last = shares("probability", "recall_by_depth")
    assert f"recall of -ln p is {first} % over its first five tokens, {last} % from the sixteenth on" in text
    assert [one["up_to"] for one in by_name["entropy"]["recall_by_length"]] == [12, 18, 25, None]
    assert [one["up_to"] for one in by_name["entropy"]["recall_by_depth"]] == [5, 15, None]


def test_tightness() -> None:
    sets = {one["name"]: one for one in stored("docs/results/diagnostics/tightness.json")["sets"]}
    name, told = "", 0
    for label, gap, *said in rows_after("tightness:")[1:]:
        name = SETS[label] if label else name
        numbers = next(one for one in sets[name]["gaps"] if one["label"] == gap)
        assert said == [f"{numbers[key]:.3f}" for key in ("mean", "median", "std", "p80", "p90")]
        told += 1
    assert told == 2 * len(sets)
    assert len({bound["name"] for one in sets.values() for bound in one["bounds"]}) == 4
    assert all(
        bound["violations"] == 0 and bound["tokens"] > 0 and bound["worst"] <= 0
        for one in sets.values()
        for bound in one["bounds"]
    ), "no token violates any of them, not even without the tolerance"


def test_regimes() -> None:
    sets = {one["name"]: one for one in stored("docs/results/diagnostics/regimes.json")["sets"]}
    head, *rows = rows_after("regimes:")
    assert [SETS[row[0]] for row in rows] == list(sets)
    for row in rows:
        one = sets[SETS[row[0]]]
        weights = {weight["method"]: weight["high"] for weight in one["weights"]}
        for title, said in zip(head[1:], row[1:], strict=True):
            value = {"tokens, sft": one["high"]["tokens"], "nll": one["high"]["nll"]}.get(title, weights.get(title))
            assert said == percent(value), (row[0], title)


def test_inspected_rows() -> None:
    tables = stored("benchmarks/results/suspects.json")["tables"]
    sentence = rows_after("inspect data:")[1]
    for said, values in zip(
        sentence[1:4],
        ([t["row_recall"] for t in tables], *([t["by_trace"][by] for t in tables] for by in ("passage", "ending"))),
        strict=True,
    ):
        assert said == ", ".join(f"{100 * value:.0f}" for value in values) + " %"
    assert sentence[4] == f"{min(t['auc'] for t in tables):.2f}-{max(t['auc'] for t in tables):.2f}"
    spans = [
        f"{100 * min(t[key] for t in tables):.0f}-{100 * max(t[key] for t in tables):.0f} %"
        for key in ("span_precision", "span_recall")
    ]
    assert sentence[5] == ", ".join(spans)


@pytest.mark.parametrize("path", sorted((ROOT / "docs/results/diagnostics").glob("*.json")), ids=lambda path: path.name)
def test_stored_results_stay_small(path: Path) -> None:
    assert path.stat().st_size < 100_000
