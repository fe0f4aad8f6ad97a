"""A comparison's tables and sentences: every row beside the original and the best other, and what it does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from ranktuner.findings import Finding
from ranktuner.report.figures.base import Table
from ranktuner.report.figures.comparison import at, model_name, place, side
from ranktuner.report.sources import Located
from ranktuner.report.writing import interval, num, sentence, visible

Record = Mapping[str, Any]
Titled = tuple[str, Table, Markup]
NOTHING = Markup("")

VERDICTS = {
    "correct": "correct",
    "wrong": "wrong",
    "unparsed": "no answer",
    "truncated": "truncated",
    "timeout": "timeout",
    "error": "error",
}
"""A verdict of evals/records.py -> the head of its column."""
MARKS = {
    "above": ("▲", "the interval is above 0"),
    "below": ("▼", "the interval is below 0"),
    "open": ("○", "the interval includes 0"),
}


def covered(found: Sequence[Located], comparisons: Sequence[Located]) -> list[Located]:
    """Return the evaluations that no comparison holds already."""
    held = [_key(one) for each in comparisons for one in each.finding.provenance.get("evaluations") or []]
    return [one for one in found if _key({"task": one.finding.numbers.get("task"), **one.finding.protocol}) not in held]


def _key(one: Record) -> tuple[Any, ...]:
    return one.get("task"), one.get("fingerprint"), one.get("decoding")


def tables(finding: Finding) -> list[Titled]:
    """Return what failed, the paper's overview of tasks, every table, and what became of the samples."""
    made = [_failed(finding.numbers["failed"])] if finding.numbers["failed"] else []
    every = finding.numbers["tables"]
    models = list(dict.fromkeys(table["model"] for table in every))
    for model in models:
        mine = [table for table in every if table["model"] == model and table["k"] is not None]
        if len(mine) > 1:
            made.append(_overview(model, mine))
    for table in every:
        made += [_table(table, k, finding) for k in _shown(table)]
    if any(row["samples"] for table in every for row in table["rows"]):
        made.append(_samples(every))
    return made


def _shown(table: Record) -> list[int | None]:
    """The table's first k, and the largest; the figure's numbers have all."""
    return list(dict.fromkeys([table["k"], table["ks"][-1]])) if table["ks"] else [None]


def _overview(model: str, mine: Sequence[Record]) -> Titled:
    """Rows against tasks, as papers print it."""
    labels = list(dict.fromkeys(row["label"] for table in mine for row in table["rows"]))
    lines = []
    for label in labels:
        cells: list[Any] = [label]
        for table in mine:
            row = next((row for row in table["rows"] if row["label"] == label), None)
            cells.append(_score(at(row["pass_at_k"], table["k"])) if row else num(None))
        lines.append(cells)
    head = ["row", *(f"{table['task']}, pass@{table['k']}" for table in mine)]
    return f"{model_name(model)}: all tasks", Table(head, lines), NOTHING


def _table(table: Record, k: int | None, finding: Finding) -> Titled:
    rows = table["rows"]
    several = any(len(row["seeds"]) > 1 for row in rows)
    printed = any(one["paper"] is not None for row in rows for one in row["pass_at_k"] if one["k"] == k)
    head = ["row", f"pass@{k}" if k else "pass@k", "points over the original", "points over the best other"]
    head += ["each training"] if several else []
    head += ["the paper's"] if printed else []
    lines = []
    for row in rows:
        score = at(row["pass_at_k"], k)
        cells: list[Any] = [_label(row), _score(score)]
        cells += [_difference(at(row["to_original"], k)), _difference(at(row["to_best"], k), names=True)]
        cells += [_seeds(score)] if several else []
        cells += [num(score["paper"] if score else None, "percent")] if printed else []
        lines.append(cells)
    samples = sorted(
        {row["n_least"] for row in rows if row["samples"]} | {row["n_most"] for row in rows if row["samples"]}
    )
    drawn = Markup(" or ").join(num(n, "count") for n in samples) or num(None)
    note = sentence("{} problems, {} samples of each.", num(table["problems"], "count"), drawn)
    note += _papers(finding.numbers.get("paper")) if printed else NOTHING
    return f"{place(table)}" + (f", pass@{k}" if k else ""), Table(head, lines), note


def _papers(paper: Record | None) -> Markup:
    if not paper:
        return NOTHING
    source = f" ({paper['source']})" if paper["source"] else ""
    return sentence(
        " The paper's numbers are those of {}{}: another machine, other seeds, and their number of samples.",
        paper["title"],
        source,
    )


def _label(row: Record) -> Markup:
    """The row's name, and which of its cells failed."""
    made = escape(visible(row["label"]))
    if not row["complete"] and row["samples"]:
        made += Markup(' <span class="failed">unfinished</span>')
    for one in row["failed"]:
        seed = sentence("seed {} ", num(one["seed"], "exact")) if one["seed"] is not None else NOTHING
        made += Markup(' <span class="failed">{}failed at {}</span>').format(seed, visible(str(one["stage"])))
    return made


def _score(score: Record | None) -> Markup:
    if score is None or score["value"] is None:
        return num(None)
    return num(score["value"], "percent") + " " + interval(score["low"], score["high"], "percent")


def mark(difference: Record) -> Markup:
    """Return the sign that tells by shape, colour and words whether the interval includes 0."""
    where = side(difference)
    sign, words = MARKS[where]
    return Markup('<span class="mark {}"><span aria-hidden="true">{}</span><span class="sr">{}</span></span>').format(
        where, sign, words
    )


def _difference(one: Record | None, names: bool = False) -> Markup:
    if one is None:
        return num(None)
    made = mark(one) + num(one["value"], "difference") + " " + interval(one["low"], one["high"], "difference")
    return made + sentence(' <span class="against">over {}</span>', one["to"]) if names else made


def _seeds(score: Record | None) -> Markup:
    """Each training's own value, and their standard deviation."""
    if score is None or not score["seeds"]:
        return num(None)
    made = Markup(", ").join(num(one["value"], "points") for one in score["seeds"])
    if score["seed_deviation"] is not None:
        made += sentence(' <span class="interval">± {}</span>', num(score["seed_deviation"], "points"))
    return made


def _failed(failed: Sequence[Record]) -> Titled:
    lines = [
        [one["label"], model_name(one["model"]), num(one["seed"], "exact"), one["stage"], one["error"]]
        for one in failed
    ]
    note = Markup("The same command tries them again; what is finished is not made again.")
    return "Cells that failed", Table(["row", "model", "seed", "stage", "error"], lines), note


def _samples(every: Sequence[Record]) -> Titled:
    lines = []
    where = ["model and task"] if len(every) > 1 else []
    for table in every:
        for row in table["rows"]:
            if row["samples"]:
                verdicts = [num(row["verdicts"][name], "count") for name in VERDICTS]
                length = num(row["tokens_per_sample"], "count")
                size = [num(row["problems"], "count"), num(row["samples"], "count")]
                lines.append([row["label"], *([place(table)] if where else []), *size, *verdicts, length])
    head = ["row", *where, "problems", "samples", *VERDICTS.values(), "tokens a sample"]
    note = Markup("Samples without a readable answer, and those cut off at the limit of tokens, count as not solved.")
    return "What became of the samples", Table(head, lines), note


def reading(finding: Finding) -> list[Markup]:
    """Return what the numbers show and what they do not, for the reader who wants to know which method is best."""
    rows = [row for table in finding.numbers["tables"] for row in table["rows"]]
    said = [
        sentence(
            "A difference is taken over the same problems for both rows, and the interval beside it says how far it "
            "could move with other problems of the same kind. {} and {}: the interval lies on one side of 0. {}: it "
            "includes 0, so that these problems cannot tell the two rows apart. That is not the same as being equal.",
            *(Markup('<span class="mark {}">{}</span>').format(name, MARKS[name][0]) for name in MARKS),
        )
    ]
    if any(len(row["seeds"]) > 1 for row in rows):
        said.append(
            Markup(
                "The samples of all trainings of a row are pooled. How much the trainings differ stands beside pass@k "
                "and is no part of the intervals: where they differ by more than the interval is wide, believe that."
            )
        )
    else:
        said.append(
            Markup(
                "Every row was trained once. The intervals know nothing of how much another seed of the training would "
                "change; for that, give the recipe several seeds."
            )
        )
    said.append(
        Markup(
            "The best other row was chosen by its result on these same problems. Whoever wins such a choice was also "
            "lucky, so the winner's lead is flattered; confirm it on problems that took no part in the choice."
        )
    )
    if sum(len(row["to_original"]) + len(row["to_best"]) for row in rows) > 5:
        said.append(
            Markup(
                "Many differences stand here. Where nothing differs at all, about one in twenty such intervals lies on "
                "one side of 0 all the same."
            )
        )
    if any(one["value"] in (0, 1) for row in rows for one in row["pass_at_k"]):
        said.append(
            Markup(
                "Where a row solved nothing, or everything, its interval has no width, and that is no certainty: a "
                "bootstrap draws only from what was seen."
            )
        )
    said += [_cut_off(table, row) for table in finding.numbers["tables"] for row in table["rows"] if _often_cut(row)]
    if finding.numbers["failed"]:
        said.append(Markup("Some cells failed. The rows without them are of fewer trainings, or not there at all."))
    return said


OFTEN = 0.2
"""A row whose samples are cut off more often than this is named beside the tables."""


def _often_cut(row: Record) -> bool:
    return bool(row["samples"]) and row["truncated"] > OFTEN * row["samples"]


def _cut_off(table: Record, row: Record) -> Markup:
    return sentence(
        "{} on {}: {} of {} samples were cut off at the limit of tokens; the row says what it does within that limit.",
        row["label"],
        table["task"],
        num(row["truncated"], "count"),
        num(row["samples"], "count"),
    )
