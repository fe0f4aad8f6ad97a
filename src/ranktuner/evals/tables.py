"""pass@k of several tasks as a table: for the terminal, Markdown and LaTeX, from the same cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ranktuner.findings import Finding

if TYPE_CHECKING:
    from rich.table import Table


def header(findings: Sequence[Finding]) -> list[str]:
    """Return the column heads: one for each k that any task reports."""
    return [
        "task",
        "problems",
        "n",
        *(f"pass@{k}" for k in _ks(findings)),
        "truncated",
        "time-outs",
        "unparsed",
        "tokens",
    ]


def cells(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the rows: percentages with the ends of the 95 % interval, counts, mean tokens of a sample."""
    ks = _ks(findings)
    rows = []
    for finding in findings:
        numbers = finding.numbers
        by_k = {row["k"]: row for row in numbers["pass_at_k"]}
        share = 100 / max(numbers["samples"], 1)
        rows.append(
            [
                numbers["task"] + ("" if numbers["complete"] else " *"),
                f"{finding.n}",
                f"{numbers['n_least']}" + (f"-{numbers['n_most']}" if numbers["n_most"] > numbers["n_least"] else ""),
                *(_percent(by_k[k]) if k in by_k else "" for k in ks),
                f"{numbers['truncated'] * share:.1f} %",
                f"{numbers['verdicts']['timeout']}",
                f"{numbers['verdicts']['unparsed']}",
                f"{numbers['tokens']['mean']:.0f}",
            ]
        )
    return rows


def notes(findings: Sequence[Finding]) -> list[str]:
    """Return what must be said beside the table."""
    said = []
    for finding in findings:
        numbers, task = finding.numbers, finding.numbers["task"]
        if not numbers["complete"]:
            every = finding.n + numbers["problems_without_samples"]
            said.append(
                f"* {task} is unfinished: {numbers['unfinished_problems']} of {every} problems have fewer than "
                f"{numbers['n']} samples; the figures are over what is finished"
            )
        if numbers["not_measured"]:
            said.append(f"{task}: k = {numbers['not_measured']} is above the finished n and not reported")
        if numbers["verdicts"]["error"]:
            why = f": {numbers['most_errors']}" if numbers.get("most_errors") else ""
            said.append(
                f"{task}: {numbers['verdicts']['error']} samples have the verdict `error`, counted as wrong{why}"
            )
        if numbers["same_answers"] and (finding.protocol.get("decoding") or {}).get("temperature", 0) > 0:
            said.append(
                f"{task}: {numbers['same_answers']} problems have the same answer in every sample although the "
                "temperature is above 0: does the server ignore temperature or seed?"
            )
    return said


def terminal(findings: Sequence[Finding]) -> Table:
    """Return the table for a terminal (rich): a line for each k, so that it fits in 80 columns."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for i, head in enumerate(["task", "problems", "n", "k", "pass@k", "std. error", "95 % interval"]):
        table.add_column(head, justify="left" if i == 0 else "right", no_wrap=True)
    for finding, row in zip(findings, cells(findings), strict=True):
        for i, at in enumerate(finding.numbers["pass_at_k"]):
            error = at["standard_error"]
            table.add_row(
                *(row[:3] if i == 0 else ("", "", "")),
                str(at["k"]),
                f"{100 * at['value']:.1f} %",
                f"{100 * error:.1f}" if error is not None else "",
                f"{100 * at['low']:.1f} - {100 * at['high']:.1f}",
            )
    return table


def counted(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each task that says what became of its samples."""
    lines = []
    for finding in findings:
        numbers = finding.numbers
        verdicts = ", ".join(f"{count:,} {name}" for name, count in numbers["verdicts"].items() if count)
        lines.append(
            f"{numbers['task']}: {numbers['samples']:,} samples: {verdicts}; {numbers['truncated']:,} hit the limit of "
            f"tokens; {numbers['tokens']['mean']:.0f} tokens a sample"
        )
    return lines


def markdown(findings: Sequence[Finding]) -> str:
    """Return the table in Markdown, with its notes."""
    heads = header(findings)
    rule = [":---"] + ["---:"] * (len(heads) - 1)
    lines = ["| " + " | ".join(row) + " |" for row in [heads, rule, *cells(findings)]]
    said = "".join(f"\n{note}\n" for note in notes(findings))
    return "\n".join(lines) + "\n\npass@k in %, with 95 % bootstrap intervals over problems.\n" + said


def latex(findings: Sequence[Finding]) -> str:
    """Return the table in LaTeX (booktabs)."""
    heads = header(findings)
    lines = [
        r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
        r"\toprule",
        " & ".join(map(_tex, heads)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_tex, row)) + r" \\" for row in cells(findings)),
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {note}" for note in notes(findings)),
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    for sign in "&%#_$":
        text = text.replace(sign, "\\" + sign)
    return text


def _percent(row: dict[str, float]) -> str:
    return f"{100 * row['value']:.1f} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"


def _ks(findings: Sequence[Finding]) -> list[int]:
    return sorted({row["k"] for finding in findings for row in finding.numbers["pass_at_k"]})
