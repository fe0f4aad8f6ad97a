"""`ranktuner inspect data`: which rows of training data do not belong."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ranktuner.cli.sources import Output, Source, columns, finish, percent, takes_source
from ranktuner.errors import InputError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Look at training data with a model's eyes.")


@app.callback()
def inspect() -> None:
    """Look at training data with a model's eyes."""


@app.command()
@takes_source
def data(
    source: Source,
    most: Annotated[int, typer.Option(min=1, help="Rows shown in the report; the CSV has all.")] = 50,
    by: Annotated[str, typer.Option(help="Order: score (the clearer trace), passage or ending.")] = "score",
    plant: Annotated[
        bool, typer.Option("--plant", help="Also plant noise and report how much of it is found.")
    ] = False,
    noise: Annotated[
        str | None, typer.Option("--noise", help="With --plant: data whose sentences are inserted too (alpaca:FILE).")
    ] = None,
    output: Output = Path("findings"),
) -> None:
    """Rank rows by how suspicious they are: inserted or exchanged text, results that contradict the derivation.

    Two traces: a passage where the model neither expected the tokens nor knew what comes next, and an ending that does
    not follow. The list is for people to read: a rare but right row can stand in it.

    Writes OUTPUT/suspects.csv (all rows), OUTPUT/inspect-data.json (for `ranktuner report`) and the token table.

    Example: ranktuner inspect data --model runs/base --data train.jsonl --rows 0 -o findings
    """
    from ranktuner.diagnostics.making import planted_tables
    from ranktuner.diagnostics.planting import prompt_of
    from ranktuner.diagnostics.suspects import check_order, inspect_data, records

    check_order(by)
    prompts: dict[str, str] = {}
    planted = {}
    if source.table:
        if plant:
            raise InputError("--plant needs the rows themselves: give --model and --data in place of --table")
        table = source.one_table([], output)
        # A table that noise was planted in says itself how much of it is found.
        planted = {"planted when the table was made": table} if table.meta.get("planted") else {}
    else:
        (name, rows), *others = source.drawn().items()
        if others:
            raise InputError(f"one --data was expected, found {len(others) + 1}: inspect one set at a time")
        foreign = source.open(noise) if noise else ()
        prompts = {row.id: prompt_of(row) for row in rows}
        with source.scorer() as scorer:
            table = scorer.table(
                output / f"{name}.parquet", rows, name, data=(source.data or [name])[0], seed=source.seed
            )
            if plant:
                planted = planted_tables(scorer, output, rows, foreign, source.seed)
    path = output / "suspects.csv"
    write_csv(path, records(table, prompts, by))
    found = inspect_data(table, by=by, most=most, prompts=prompts, planted=planted)
    body = [
        [str(row["place"]), row["id"], f"{row['score']:.1f}", _short(row["span"]["text"])]
        for row in found.numbers["rows"][:10]
    ]
    lines = columns(["", "row", "score", "what stands out"], body)
    if planted:
        parts = ("row_precision", "span_precision", "span_recall")
        found_again = [
            [kind["kind"], str(kind["planted"]), *(percent(kind[p]) for p in parts), f"{kind['auc']:.3f}"]
            for kind in found.numbers["planted"]["kinds"]
        ]
        lines += ["", *columns(["planted", "rows", "found", "span precision", "span recall", "AUC"], found_again)]
    finish(found, output, [*lines, f"all {found.n} rows: {path}"])


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 40 else plain[:39] + "…"


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write records as CSV, whole or not at all."""
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    # A spreadsheet would run a cell that begins with = + - @ as a formula: such text gets a quote before it.
    with part.open("w", encoding="utf-8-sig", newline="", errors="replace") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    part.replace(path)


def _harmless(value: object) -> object:
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
