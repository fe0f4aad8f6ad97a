"""`ranktuner methods` and `ranktuner weigh`: what the weightings are, and what they do to one token."""

from __future__ import annotations

from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, help="Token weightings.")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method to explain, such as ranktuner or 'eaft(k=10)'.")] = None,
) -> None:
    """List the token weightings, or explain one: formula, parameters, defaults, when to use.

    Example: ranktuner methods ranktuner
    """
    from ranktuner.cli import console

    if name is None:
        console().print(_table())
        console().print("\nranktuner methods NAME explains one; a spec such as eaft(k=10) goes wherever a name does.")
    else:
        console().print(_explain(name), soft_wrap=True, markup=False)


def _table() -> Any:
    from rich.markup import escape
    from rich.table import Table

    from ranktuner.errors import InputError
    from ranktuner.registry import method, names

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "weight of nll", "reads", "scope", "paper"):
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "scope"))
    for name in names():
        try:
            chosen = method(name)
        except InputError as error:  # another package's method, which must not take ours from the table
            table.add_row(escape(name), "-", "-", "-", escape(str(error)))
            continue
        card = chosen.card
        row = (name, card.formula.split("; ")[0], card.reads, chosen.scope, card.paper)
        table.add_row(*map(escape, row))
    return table


def _explain(name: str) -> str:
    from ranktuner import spec
    from ranktuner.registry import method

    chosen = method(name)
    card = chosen.card
    about = (chosen.function.__doc__ or "").strip().splitlines()
    rows = [("weight", card.formula), ("reads", card.reads), ("scope", chosen.scope), ("paper", card.paper)]
    rows += [("checked in", card.confirmed), ("when", card.when)]
    lines = [str(chosen), *([f"  {about[0]}"] if about else []), ""]
    lines += [f"  {key:<11} {value}" for key, value in rows]
    known = spec.parameters_of(chosen.function)
    lines += ["", "  parameters" if known else "  no parameters"]
    for key, (annotation, default) in known.items():
        lines.append(f"    {key:<9} {spec.describe(annotation)}; default {spec.text_of(default)}")
    return "\n".join(lines)


@app.command()
def weigh(
    p: Annotated[float, typer.Option(help="Probability of the label, above 0 to 1.")],
    entropy: Annotated[float, typer.Option(help="Entropy of the distribution, in BITS.")],
    rank: Annotated[int, typer.Option(help="Rank of the label: how many tokens are at least as likely; 1 is the top.")],
    p_max: Annotated[float, typer.Option("--p-max", help="Probability of the most likely token.")],
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method or spec; may be given several times.")
    ] = None,
) -> None:
    """Give the weight of every method for one token, side by side.

    Example: ranktuner weigh --p 0.02 --entropy 6 --rank 15 --p-max 0.06
    """
    from ranktuner.by_hand import weigh_token
    from ranktuner.cli import console

    console().print(_weights(weigh_token(p, entropy, rank, p_max, method)))


def _weights(rows: list[tuple[str, float | None, str]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", overflow="fold")
    table.add_column("weight of nll", justify="right")
    table.add_column("")
    for name, weight, note in rows:
        table.add_row(name, "" if weight is None else f"{weight:.4g}", note)
    return table
