"""The comparison in a terminal: pass@k of every row, then the differences, in tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ranktuner.findings import Finding

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Record = Mapping[str, Any]


def print_table(finding: Finding, console: Console) -> None:
    """Print every model and task of a Finding `comparison`, and what must be said beside it."""
    for table in finding.numbers["tables"]:
        head = f"{table['model']} on {table['task']}: {table['problems']:,} problems"
        console.print(f"\n{head}", markup=False, highlight=False)
        console.print(_scores(table))
        if any(row["to_original"] or row["to_best"] for row in table["rows"]):
            console.print(_differences(table))
            console.print(_best(table), markup=False, highlight=False, soft_wrap=True)
    for line in notes(finding):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def notes(finding: Finding) -> Iterator[str]:
    """Say what the intervals mean, what became of the samples, and what failed."""
    tables = finding.numbers["tables"]
    for table in tables:
        for row in table["rows"]:
            if row["samples"]:
                yield f"{_where(table, tables)}{row['label']}: {_counted(row)}"
    if tables:
        yield (
            "Intervals: 95 % bootstrap over problems, differences paired over the same problems. A difference whose "
            "interval includes 0 (marked ~) may be chance. The best other row is chosen on these same problems."
        )
    if any(len(row["seeds"]) > 1 for table in tables for row in table["rows"]):
        yield "Seeds are pooled; the deviation between them is beside pass@k and no part of the intervals."
    places: dict[str, list[str]] = {}
    for one in finding.numbers["failed"]:
        seed = "" if one["seed"] is None else f", seed {one['seed']}"
        places.setdefault(one["error"], []).append(f"{one['label']} ({one['model']}{seed}) at {one['stage']}")
    for error, named in places.items():  # data that cannot be made fail every row: said once
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        yield f"failed: {', '.join(named[:3])}{more}: {error}"


def _where(table: Record, tables: list[Record]) -> str:
    return f"{table['model']}, {table['task']}, " if len(tables) > 1 else ""


def _counted(row: Record) -> str:
    named = ("truncated", "unparsed", "timeout", "error")
    rest = [f"{row['verdicts'][name]:,} {name}" for name in named if row["verdicts"][name]]
    size = f"{row['samples']:,} samples of {row['problems']:,} problems, {row['tokens_per_sample']:.0f} tokens each"
    return ", ".join([size, *rest]) + ("" if row["complete"] else "; unfinished")


def _scores(table: Record) -> Table:
    """A line for each row and k, so that it fits: value, error, interval, seeds, the paper's."""
    made = _empty(["row", "n", "k", "pass@k", "std. error", "95 % interval"])
    several = any(len(row["seeds"]) > 1 for row in table["rows"])
    printed = any(at["paper"] is not None for row in table["rows"] for at in row["pass_at_k"])
    if several:
        made.add_column("seeds", justify="right", no_wrap=True)
    if printed:
        made.add_column("paper", justify="right", no_wrap=True)
    for row in table["rows"]:
        for i, at in enumerate(row["pass_at_k"] or [None]):
            n = str(row["n_least"]) + (f"-{row['n_most']}" if row["n_most"] > row["n_least"] else "")
            cells = [row["label"] if i == 0 else "", n if i == 0 else ""]
            cells += _score(at) if at else ["", "failed", "", ""]
            if several:
                cells.append(_points(at and at["seed_deviation"], "± "))
            if printed:
                cells.append(_points(at and at["paper"]))
            made.add_row(*cells)
    return made


def _score(at: Record) -> list[str]:
    if at["value"] is None:
        return [str(at["k"]), "", "", ""]
    between = f"{100 * at['low']:.1f} - {100 * at['high']:.1f}"
    return [str(at["k"]), f"{100 * at['value']:.1f} %", _points(at["standard_error"]), between]


def _points(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{sign}{100 * value:.1f}"


def _differences(table: Record) -> Table:
    """The differences at the table's first k, in points of percent."""
    made = _empty([f"pass@{table['k']}, points", "to original", "to the best other"])
    for row in table["rows"]:
        first, best = (_at(row[key], table["k"]) for key in ("to_original", "to_best"))
        if first or best:
            made.add_row(row["label"], _difference(first), _difference(best))
    return made


def _best(table: Record) -> str:
    """Name the other row that stands for the best; it is one for all rows but itself."""
    found = {row["label"]: best["to"] for row in table["rows"] if (best := _at(row["to_best"], table["k"]))}
    named = list(found.values())
    usual = max(dict.fromkeys(named), key=named.count, default=None)
    rest = [f"for {label} it is {best}" for label, best in found.items() if best != usual]
    return f"The best other is {'; '.join([usual, *rest])}." if usual else ""


def _at(found: list[Record], k: int) -> Record | None:
    return next((one for one in found if one["k"] == k), None)


def _difference(one: Record | None) -> str:
    if one is None:
        return ""
    mark = "~" if one["low"] <= 0 <= one["high"] else ""
    return f"{mark}{100 * one['value']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"


def _empty(heads: list[str]) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    # In a narrow terminal the label folds before a number is cut.
    for i, head in enumerate(heads):
        made.add_column(head, justify="left" if i == 0 else "right", no_wrap=i > 0, overflow="fold")
    return made
