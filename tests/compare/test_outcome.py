"""The comparison against numbers counted by hand, and what must not be hidden: failures, seeds, gaps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ranktuner.compare.outcome import Evaluated, Failed, comparison, print_table
from ranktuner.compare.recipe import Recipe, make_recipe
from ranktuner.errors import DataError
from ranktuner.evals.passk import paired_difference, uncertainty
from ranktuner.evals.records import Grade, Problem, Sample
from ranktuner.evals.results import Outcome, pass_at_k_finding
from ranktuner.findings import Finding


def recipe(**more: Any) -> Recipe:
    rows = ["sft", {"method": "dft", "label": "DFT"}, {"method": "ranktuner(prior=prob)", "label": "Ours"}]
    tree = {"name": "mine", "models": ["m"], "methods": rows, "train": {"data": {"source": ["x.jsonl"]}}}
    return make_recipe({**tree, "eval": {"tasks": ["t"], "n": 4, "k": [2, 1]}, **more})


def evaluated(
    folder: Path,
    label: str,
    correct: Sequence[int],
    *,
    n: int = 4,
    seed: int | None = 0,
    task: str = "t",
    names: Sequence[str] = (),
    model: str = "m",
    decoding: Mapping[str, Any] | None = None,
) -> Evaluated:
    """A finished evaluation in which problem i has correct[i] of n samples right, as `ranktuner eval` stores it."""
    ids = list(names) or [f"p{i}" for i in range(len(correct))]
    right = dict(zip(ids, correct, strict=True))
    samples = [Sample(task, name, i, 0, "x", "stop", 10 + i, "", {}, "") for name in ids for i in range(n)]
    grades = {
        (s.problem, s.index): Grade("correct" if s.index < right[s.problem] else "unparsed", "4", "") for s in samples
    }
    outcome = Outcome.of(task, task, [Problem(name, "?", "4") for name in ids], n, samples, grades)
    protocol = {"decoding": dict(decoding or {"temperature": 1.0}), "fingerprint": f"{label} {seed}"}
    place = folder / f"{model} {label} {seed}"
    pass_at_k_finding(outcome, (1, 2), protocol=protocol).save(
        place / "findings" / f"pass-at-k-{task}-{len(list(place.rglob('*.json')))}.json"
    )
    return Evaluated(model, label, None if label == "original" else seed, place)


def printed(finding: Finding, width: int = 80) -> str:
    text = io.StringIO()
    print_table(finding, Console(file=text, width=width))
    return text.getvalue()


def row(finding: Finding, label: str, table: int = 0) -> Any:
    return next(one for one in finding.numbers["tables"][table]["rows"] if one["label"] == label)


def at(record: Any, k: int) -> Any:
    return next(one for one in record["pass_at_k"] if one["k"] == k)


def test_rows_hold_the_hand_counted_numbers_in_the_order_of_the_recipe(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, "DFT", [4, 2, 0]), evaluated(tmp_path, "original", [1, 0, 0])]
    cells.append(evaluated(tmp_path, "sft", [2, 2, 2]))
    found = comparison(recipe(), cells)
    assert (found.kind, found.n, found.numbers["tables"][0]["k"]) == ("comparison", 3, 2)
    assert [one["label"] for one in found.numbers["tables"][0]["rows"]] == ["original", "sft", "DFT"]
    dft = row(found, "DFT")
    assert at(dft, 1)["value"] == 6 / 12
    assert at(dft, 2)["value"] == pytest.approx((6 + 5 + 0) / 18)  # choices of 2 of 4 that hold a correct one
    spread = uncertainty([(4, 4), (4, 2), (4, 0)], 2)
    assert (at(dft, 2)["low"], at(dft, 2)["high"]) == (spread.low, spread.high)
    assert (dft["samples"], dft["n_least"], dft["problems"], dft["tokens_per_sample"]) == (12, 4, 3, 11.5)
    assert (dft["verdicts"]["unparsed"], dft["verdicts"]["truncated"], dft["verdicts"]["correct"]) == (6, 0, 6)


def test_differences_are_paired_to_the_original_and_to_the_best_other(tmp_path: Path) -> None:
    correct = {"original": [1, 0, 0], "sft": [2, 2, 2], "DFT": [4, 2, 0], "Ours": [4, 4, 3]}
    found = comparison(recipe(), [evaluated(tmp_path, label, c) for label, c in correct.items()])
    counts = {label: [(4, c) for c in each] for label, each in correct.items()}
    assert row(found, "original")["to_original"] == row(found, "original")["to_best"] == []
    for label, best in (("sft", "Ours"), ("DFT", "Ours"), ("Ours", "sft")):
        for key, to in (("to_original", "original"), ("to_best", best)):
            by_k = {one["k"]: one for one in row(found, label)[key]}
            for k in (1, 2):
                # sft and DFT are equal at k = 1, where the first row of the recipe stands for the best.
                expected = paired_difference(counts[label], counts[to], k)
                assert (by_k[k]["to"], by_k[k]["problems"]) == (to, 3)
                assert (by_k[k]["value"], by_k[k]["low"], by_k[k]["high"]) == (
                    expected.value,
                    expected.low,
                    expected.high,
                )


def test_a_difference_is_over_the_problems_that_both_have(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, "original", [0, 4], names=["a", "b"])]
    cells.append(evaluated(tmp_path, "sft", [4, 0, 4], names=["b", "a", "c"]))
    (one, _) = row(comparison(recipe(), cells), "sft")["to_original"]
    assert (one["problems"], one["value"], one["low"], one["high"]) == (2, 0.0, 0.0, 0.0)


def test_a_narrow_terminal_folds_labels_and_cuts_no_number(tmp_path: Path) -> None:
    long = recipe(methods=["ranktuner(prior=uniform)"])
    cells = [evaluated(tmp_path, "original", [1] * 9 + [0])]
    cells += [evaluated(tmp_path, "ranktuner(prior=uniform)", [4] * (9 - i) + [0] * (1 + i), seed=i) for i in (0, 4)]
    finding = comparison(long, cells)
    assert "  ranktuner(prior=uniform)  8  1  70.0 %  " in printed(finding)
    for width in (80, 62):
        said = printed(finding, width)
        assert "95 % interval" in said
        assert "± 28.3" in said
        assert "…" not in said


def test_seeds_are_pooled_as_samples_of_the_same_problem_and_their_spread_is_said(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, "sft", [4, 0], seed=0), evaluated(tmp_path, "sft", [2, 2], n=8, seed=7)]
    sft = row(comparison(recipe(), cells), "sft")
    assert (sft["seeds"], sft["n_least"], sft["samples"]) == ([0, 7], 12, 24)
    one = at(sft, 1)
    assert one["value"] == pytest.approx(8 / 24)
    assert [each["value"] for each in one["seeds"]] == [0.5, 0.25]
    assert (one["seed_mean"], one["seed_deviation"]) == (0.375, pytest.approx(0.125 * 2**0.5))
    pooled = [(12, 6), (12, 2)]
    assert at(sft, 2)["low"] == uncertainty(pooled, 2).low


def test_failed_cells_are_rows_that_say_so(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, "original", [0, 1]), evaluated(tmp_path, "DFT", [1, 1], seed=0)]
    failed = [Failed("m", "sft", 0, "train", "out of memory"), Failed("m", "DFT", 1, "eval", "disk full")]
    found = comparison(recipe(), cells, failed)
    sft, dft = row(found, "sft"), row(found, "DFT")
    assert (sft["pass_at_k"], sft["to_original"]) == ([], [])
    assert sft["failed"] == [{"seed": 0, "stage": "train", "error": "out of memory"}]
    assert (dft["seeds"], dft["failed"][0]["stage"]) == ([0], "eval")
    assert [one["label"] for one in found.numbers["failed"]] == ["sft", "DFT"]
    Finding.from_json(found.to_json())
    text = printed(found)
    assert "failed: sft (m, seed 0) at train: out of memory" in text
    assert "DFT" in text


def test_one_cause_of_many_failures_is_said_once(tmp_path: Path) -> None:
    rows = [("sft", 0), ("sft", 1), ("DFT", 0), ("DFT", 1), ("DFT", 2)]
    found = comparison(recipe(), [], [Failed("m", label, seed, "train", "no data") for label, seed in rows])
    lines = [line for line in printed(found).splitlines() if "no data" in line or "failed:" in line]
    said = " ".join(" ".join(lines).split())
    assert said.count("no data") == said.count("failed:") == 1
    assert "failed: sft (m, seed 0) at train, sft (m, seed 1) at train, DFT (m, seed 0) at train and 2 more" in said


def test_nothing_finished_is_still_a_finding(tmp_path: Path) -> None:
    found = comparison(recipe(), [], [Failed("m", "sft", 0, "train", "killed")])
    assert (found.n, found.numbers["tables"], len(found.numbers["failed"])) == (0, [], 1)


PAPER = """
title = "The paper"
[[table]]
id = "main"
model = "org/m"
columns = ["t pass@1", "t pass@2", "other pass@1"]
rows = [
  {label = "Original", method = "original", values = [10, 20, 30]},
  {label = "DFT", method = "dft", values = [40.5, "missing", 1]},
  {label = "RankTuner", method = "ranktuner( prior = prob )", values = [50, 60, 2]},
]
"""


def test_the_papers_numbers_stand_beside_the_same_row_and_column(tmp_path: Path) -> None:
    (tmp_path / "paper.toml").write_text(PAPER)
    with_paper = recipe(paper="paper.toml")
    with_paper._folder = tmp_path
    cells = [evaluated(tmp_path, label, [1, 0]) for label in ("original", "sft", "DFT", "Ours")]
    cells += [evaluated(tmp_path, "DFT", [1, 0], model="another")]
    found = comparison(with_paper, cells)
    papers = {label: [one["paper"] for one in row(found, label)["pass_at_k"]] for label in ("original", "sft", "DFT")}
    assert papers == {"original": [0.1, 0.2], "sft": [None, None], "DFT": [0.405, None]}
    assert [one["paper"] for one in row(found, "Ours")["pass_at_k"]] == [0.5, 0.6]
    assert [one["paper"] for one in row(found, "DFT", 1)["pass_at_k"]] == [None, None], "another model's numbers"
    assert found.numbers["paper"]["title"] == "The paper"


def test_one_task_drawn_in_two_ways_is_two_tables(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, "sft", [4, 4], decoding={"temperature": 1.0, "top_p": 1})]
    cells.append(evaluated(tmp_path, "sft", [0, 0], decoding={"temperature": 0.2, "top_p": 1}))
    found = comparison(recipe(), cells[:1])
    assert found.numbers["tasks"] == ["t (temperature 1.0)", "t (temperature 0.2)"]
    assert [at(row(found, "sft", i), 1)["value"] for i in (0, 1)] == [1.0, 0.0]


def test_it_is_the_same_every_time(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, label, [1, 3, 0, 2]) for label in ("original", "sft", "DFT")]
    first, again = comparison(recipe(), cells), comparison(recipe(), cells[::-1])
    assert first.numbers == again.numbers


def test_an_unfinished_evaluation_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"so the evaluation of sft \(m\) has not finished; run it again"):
        comparison(recipe(), [Evaluated("m", "sft", 0, tmp_path)])


def test_the_terminal_says_which_differences_may_be_chance(tmp_path: Path) -> None:
    cells = [evaluated(tmp_path, "original", [0] * 8), evaluated(tmp_path, "sft", [4] * 8)]
    cells.append(evaluated(tmp_path, "DFT", [4, 4, 4, 4, 0, 4, 4, 4]))
    text = printed(comparison(recipe(), cells))
    lines = [line.split() for line in text.splitlines()]
    assert ["sft", "+100.0", "[+100.0,", "+100.0]", "~+12.5", "[+0.0,", "+37.5]"] in lines
    assert "The best other is DFT; for DFT it is sft." in text
    assert max(map(len, text.split("Intervals:")[0].splitlines())) <= 80
