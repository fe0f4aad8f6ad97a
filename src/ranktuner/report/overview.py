"""The overview: one fact for each thing that was measured, with its interval and what it means in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ranktuner.report.comparison import covered
from ranktuner.report.figures import evaluation
from ranktuner.report.figures.comparison import at, place, side
from ranktuner.report.sources import Located, Run, Sources
from ranktuner.report.writing import interval, num, sentence

NOTHING = Markup("")


@dataclass(frozen=True)
class Fact:
    """One main number."""

    label: str
    value: Markup
    meaning: Markup
    link: str
    link_text: str
    interval: Markup = NOTHING


def facts(sources: Sources) -> list[Fact]:
    """Return the main facts in reading order; a kind that was not measured has none."""
    compared = sources.of("comparison")
    made = [one for found in compared[:2] for one in _compared(found)]
    made += _evaluated(covered(sources.of("pass-at-k"), compared))
    made += _trained(sources.runs)
    for kind, fact in _OF_KIND.items():
        made += [one for found in sources.of(kind)[:2] if (one := fact(found)) is not None]
    return made


def _compared(found: Located) -> list[Fact]:
    """The highest trained row of the first three tables, and whether anything speaks for the order."""
    return [fact for table in found.finding.numbers["tables"][:3] if (fact := _highest(table)) is not None]


def _highest(table: Mapping[str, Any]) -> Fact | None:
    scores = [(row, at(row["pass_at_k"], table["k"])) for row in table["rows"] if row["label"] != "original"]
    there = [(row, score) for row, score in scores if score and score["value"] is not None]
    if not there:
        return None
    row, score = max(there, key=lambda pair: pair[1]["value"])
    meaning = sentence("of {} problems, by {}.", num(row["problems"], "count"), row["label"])
    for key, words in (("to_original", "the original"), ("to_best", None)):
        one = at(row[key], table["k"])
        if one:
            between = interval(one["low"], one["high"], "difference")
            meaning += sentence(
                " {} points over {} ({}{}).",
                num(one["value"], "difference"),
                words or one["to"],
                between,
                ", so their order may be chance" if side(one) == "open" else "",
            )
    label = f"Highest pass@{table['k']}: {place(table)}"
    between = interval(score["low"], score["high"], "percent")
    return Fact(label, num(score["value"], "percent"), meaning, "comparison", "the comparison", between)


def _trained(runs: Sequence[Run]) -> list[Fact]:
    made = []
    for run in [r for r in runs if not r.name.startswith("sft")][:2] or runs[:1]:
        first, last = run.ends
        if last.get("effective_tokens") is None:
            continue
        meaning = sentence(
            "of the tokens carry the loss at the last step, as if the others were not there. Plain NLL went from {} "
            "to {} nats in {} steps.",
            num(first.get("nll")),
            num(last.get("nll")),
            num(last["step"], "count"),
        )
        made.append(
            Fact(
                f"Effective tokens, {run.name}",
                num(last["effective_tokens"], "percent"),
                meaning,
                "training",
                "the curves",
            )
        )
    return made


def _regimes(found: Located) -> Fact | None:
    one = _first(found.finding.numbers.get("sets"))
    if one is None:
        return None
    meaning = sentence(
        "of the tokens of {} stand in open contexts (H ≥ {} bits), and they carry {} of the loss. Everywhere else the "
        "model is sure of itself.",
        one["name"],
        num(found.finding.numbers["border_bits"], "exact"),
        num(one["high"]["nll"], "percent"),
    )
    return Fact("Tokens in open contexts", num(one["high"]["tokens"], "percent"), meaning, "fig-regimes", "the regimes")


def _noise(found: Located) -> Fact | None:
    by_name = {score["name"]: score for score in found.finding.numbers["scores"]}
    mine, other = by_name.get("inverse-indicator"), by_name.get("entropy")
    if mine is None or other is None:
        return None
    recall = mine["token_recall"]
    meaning = sentence(
        "of inserted noise is among the top {} of tokens by 1/I; entropy takes {} of it for something to learn. "
        "Chance is {}.",
        num(found.finding.protocol.get("top"), "whole-percent"),
        num(other["token_recall"]["mean"], "percent"),
        num((found.finding.numbers.get("chance") or {}).get("token_recall"), "whole-percent"),
    )
    return Fact(
        "Noise mistaken for signal",
        num(recall["mean"], "percent"),
        meaning,
        "fig-noise",
        "the noise test",
        interval(recall["low"], recall["high"], "percent"),
    )


def _tightness(found: Located) -> Fact | None:
    sets = found.finding.numbers.get("sets") or []
    worst = max((bound for one in sets for bound in one["bounds"]), key=lambda b: b["violations"], default=None)
    if worst is None:
        return None
    gap = sets[0]["gaps"][0]
    meaning = sentence(
        "tokens break a bound, of {} that were checked. The rank bound is off by {} at the median of {}.",
        num(found.finding.n, "count"),
        num(gap["median"]),
        sets[0]["name"],
    )
    return Fact("Broken bounds", num(worst["violations"], "count"), meaning, "diagnostics", "the bounds")


def _entropy(found: Located) -> Fact | None:
    models = found.finding.numbers.get("models") or []
    mine = next((m for m in models if str(m["name"]).startswith("ranktuner")), _first(models))
    if mine is None:
        return None
    others = [m for m in models if m is not mine]
    against = (
        sentence(" {} has {}.", others[0]["name"], num(others[0]["entropy_bits"]["mean"])) if others else Markup("")
    )
    meaning = (
        sentence("bits a token while {} writes, over {} samples.", mine["name"], num(mine["samples"], "count"))
        + against
    )
    entropy = mine["entropy_bits"]
    return Fact(
        "Entropy while writing",
        num(entropy["mean"]),
        meaning,
        "fig-inference-entropy",
        "the comparison",
        interval(entropy["low"], entropy["high"]),
    )


def _inspected(found: Located) -> Fact | None:
    numbers = found.finding.numbers
    planted = _first((numbers.get("planted") or {}).get("kinds"))
    if planted is not None:
        meaning = sentence(
            "of planted noise ({}) is found among as many rows as were planted, out of {} rows.",
            planted["kind"],
            num(numbers["of_rows"], "count"),
        )
        return Fact("Suspicious rows found", num(planted["row_recall"], "percent"), meaning, "suspects", "the rows")
    top = _first(numbers.get("rows"))
    if top is None:
        return None
    meaning = sentence(
        "is the highest suspicion score of {} rows: {}.", num(numbers["of_rows"], "count"), top["reason"]
    )
    return Fact("Most suspicious row", num(top["score"]), meaning, "suspects", "the rows")


def _first(items: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any] | None:
    return items[0] if items else None


_OF_KIND: dict[str, Callable[[Located], Fact | None]] = {
    "noise": _noise,
    "regimes": _regimes,
    "tightness": _tightness,
    "inference-entropy": _entropy,
    "inspect-data": _inspected,
}


def _evaluated(found: Sequence[Located]) -> list[Fact]:
    """One fact for each of the first three tasks: the tuned model against the plain one, at the smallest k."""
    made = []
    for task, models in list(evaluation.tasks_of(found).items())[:3]:
        mine = next((name for name in models if not name.startswith("sft")), next(iter(models)))
        others = [name for name in models if name != mine]
        base = next((name for name in others if name.startswith("sft")), _first_name(others))
        row = models[mine].finding.numbers["pass_at_k"][0]
        solved = "at the first try" if row["k"] == 1 else f"within {row['k']} tries"
        meaning = sentence("of {} problems solved {} by {}.", num(models[mine].finding.n, "count"), solved, mine)
        other = evaluation.at(models[base], row["k"]) if base else None
        if other:
            meaning += sentence(" {} solves {}{}.", base, num(other["value"], "percent"), _apart(row, other))
        between = interval(row["low"], row["high"], "percent")
        made.append(
            Fact(f"{task}, pass@{row['k']}", num(row["value"], "percent"), meaning, "results", "the results", between)
        )
    return made


def _first_name(names: Sequence[str]) -> str | None:
    return names[0] if names else None


def _apart(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Whether the intervals let a reader believe in a difference."""
    if row["low"] is None or other["low"] is None:
        return ""
    if row["low"] > other["high"] or row["high"] < other["low"]:
        return "; the intervals do not touch"
    return "; the intervals overlap, so the difference may be chance"
