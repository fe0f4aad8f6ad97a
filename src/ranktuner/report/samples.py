"""The sample browser: stored answers with their grades, as many as the page can hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ranktuner.report.sources import Located
from ranktuner.report.writing import visible

BUDGET = 1_000_000
"""Bytes of the page that samples may take."""

VERDICTS = ("correct", "wrong", "unparsed", "truncated", "timeout", "error")
"""In the order of the filter; a verdict that is not among them comes last."""


def sample_browser(found: Sequence[Located], budget: int = BUDGET) -> dict[str, Any] | None:
    """Return the page's samples, or None where there are none.

    Args:
        found: Findings of kind `samples`.
        budget: bytes; where it does not hold all, every task and model gives its first samples in turn.

    Returns:
        `groups` (model, task, problems), `items`, and how many are `shown` of how many were `found`.
    """
    if not any(one.finding.numbers["samples"] for one in found):
        return None
    groups: list[dict[str, Any]] = [
        {"run": visible(one.label), "task": visible(one.finding.numbers["task"]), "problems": {}} for one in found
    ]
    items: list[dict[str, Any]] = []
    spent = 0
    for place, sample in _in_turn(found):
        item = _item(place, sample)
        problems = groups[place]["problems"]
        added: dict[str, Any] = {"item": item}
        if item["problem"] not in problems:
            added["problem"] = _problem(found[place], sample)
        size = len(json.dumps(added, separators=(",", ":")))
        if items and spent + size > budget:
            continue
        spent += size
        items.append(item)
        if "problem" in added:
            problems[item["problem"]] = added["problem"]
    total = sum(int(one.finding.numbers.get("found", len(one.finding.numbers["samples"]))) for one in found)
    verdicts = list(dict.fromkeys([*VERDICTS, *(item["verdict"] for item in items)]))
    return {"groups": groups, "items": items, "verdicts": verdicts, "shown": len(items), "found": total}


def _in_turn(found: Sequence[Located]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lists = [[(place, sample) for sample in one.finding.numbers["samples"]] for place, one in enumerate(found)]
    for turn in zip_longest(*lists):
        yield from (pair for pair in turn if pair is not None)


def _item(place: int, sample: Mapping[str, Any]) -> dict[str, Any]:
    answer = sample.get("answer")
    return {
        "g": place,
        "problem": visible(str(sample["problem"])),
        "index": sample["index"],
        "verdict": sample["verdict"],
        "answer": None if answer is None else visible(str(answer)),
        "why": visible(sample.get("why") or ""),
        "text": visible(sample["text"]),
        "code": "```" in sample["text"] or sample["text"].lstrip().startswith(("def ", "import ", "from ")),
    }


def _problem(found: Located, sample: Mapping[str, Any]) -> dict[str, str]:
    problem = found.finding.numbers["problems"].get(sample["problem"], {})
    return {"prompt": visible(problem.get("prompt") or ""), "gold": visible(str(problem.get("gold") or ""))}
