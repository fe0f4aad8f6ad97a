"""Token tables of a model over data, and what they show. Each command writes a Finding that the report draws."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranktuner.cli.sources import METHODS, Methods, Output, Source, columns, finish, percent, takes_source
from ranktuner.errors import InputError

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

FOLDER = Path("findings")


@app.command()
@takes_source
def table(source: Source, method: Methods = None, output: Output = FOLDER) -> None:
    """Make a token table of each set: one pass of the model, then every other command reads it with --table.

    Example: ranktuner diagnose table --model runs/sft --data gsm8k:train.jsonl --rows 0
    """
    if source.table:
        raise InputError("this command makes token tables; it takes --model and --data, not --table")
    for name, made in source.tables(method or METHODS, output).items():
        typer.echo(f"{output / name}.parquet: {made.meta['rows']:,} rows, {len(made):,} tokens")


@app.command()
@takes_source
def noise(
    source: Source,
    noise: Annotated[
        str | None, typer.Option("--noise", help="Data whose answers' first sentences are inserted (alpaca:FILE).")
    ] = None,
    seeds: Annotated[str, typer.Option(help="One table each; they draw rows, places and sentences.")] = "0,1,2",
    method: Methods = None,
    output: Output = FOLDER,
) -> None:
    """Do a score's top tokens point at planted noise? The paper's insertion protocol.

    A tenth of the rows gets a foreign sentence at the white space nearest to the middle of the answer. Reported: recall
    and precision of the inserted tokens among the top 10 % of all, and hits of corrupted rows among the top 10 % of
    rows, for entropy, -ln p, 1/I and the weights of methods. High is good for finding noise, and bad for a weight.

    Example: ranktuner diagnose noise --model runs/sft --data gsm8k:train.jsonl --noise alpaca:alpaca.json
    """
    from ranktuner.diagnostics.making import noise_tables, noisy_rows
    from ranktuner.diagnostics.noise import noise as find
    from ranktuner.diagnostics.table import read_table

    methods = method or METHODS
    if source.table:
        made = [read_table(path.partition("=")[2] or path) for path in source.table]
    else:
        if noise is None:
            raise InputError("--noise is missing: name data whose sentences are planted, such as alpaca:FILE")
        numbers = whole_numbers(seeds)
        name, rows = source.single()
        # Before the model loads: too few rows or sentences are then said at once.
        planted = noisy_rows(rows, source.open(noise), count=source.rows, seeds=numbers)
        with source.scorer(methods) as scorer:
            made = noise_tables(scorer, output, planted, data=name, noise_source=noise)
    found = find(made, methods)
    parts = ("token_recall", "token_precision", "sequence_hit")
    body = [
        [score["label"], *(f"{score[p]['mean']:.1%} ({score[p]['low']:.0%}-{score[p]['high']:.0%})" for p in parts)]
        for score in found.numbers["scores"]
    ]
    finish(found, output, columns(["", "token recall", "token precision", "sequence hit"], body))


def whole_numbers(text: str) -> list[int]:
    """Read seeds such as `0,1,2`."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text!r}: whole numbers with commas were expected, such as 0,1,2") from None
    if min(found) < 0:
        raise InputError(f"--seeds {text!r}: a seed is 0 or larger")
    if len(set(found)) < len(found):
        raise InputError(f"--seeds {text!r}: a seed stands there twice; it would count the same rows twice")
    return found


@app.command()
@takes_source
def tightness(source: Source, output: Output = FOLDER) -> None:
    """How tight the bounds of rank and expected rank are: 1/R - p and 1/s - 1/E[R]; and that none is violated.

    Example: ranktuner diagnose tightness --model runs/sft --data math=math500.jsonl --data gsm8k:test.jsonl
    """
    from ranktuner.diagnostics.tightness import tightness as find

    found = find(source.tables([], output))
    body = [
        [f"{one['name']}: {gap['label']}", *(f"{gap[key]:.3f}" for key in ("mean", "median", "std", "p80", "p90"))]
        for one in found.numbers["sets"]
        for gap in one["gaps"]
    ]
    wrong = f"tokens on the wrong side of a bound, beyond rounding: {found.protocol['violations']}"
    finish(found, output, [*columns(["", "mean", "median", "std", "P80", "P90"], body), wrong])


@app.command()
@takes_source
def regimes(source: Source, method: Methods = None, output: Output = FOLDER) -> None:
    """Where tokens, loss and every method's weight lie on each side of 2 bits of entropy.

    Example: ranktuner diagnose regimes --table findings/gsm8k.parquet --method dft --method "ranktuner(prior=prob)"
    """
    from ranktuner.diagnostics.regimes import regimes as find

    methods = method or METHODS
    found = find(source.tables(methods, output), methods)
    body = [
        [one["name"], percent(one["high"]["tokens"]), percent(one["high"]["nll"])]
        + [percent(weight["high"]) for weight in one["weights"]]
        for one in found.numbers["sets"]
    ]
    finish(found, output, ["share at H >= 2 bits of", *columns(["", "tokens", "nll", *methods], body)])


@app.command()
@takes_source
def tokens(
    source: Source,
    row: Annotated[
        list[str] | None, typer.Option(help="Id of a row to show (train.jsonl:17); repeat. Default: from the front.")
    ] = None,
    method: Methods = None,
    output: Output = FOLDER,
) -> None:
    """The token view: rows with everything known of their tokens, to be coloured in the report.

    Example: ranktuner diagnose tokens --model runs/sft --data train.jsonl --row train.jsonl:17
    """
    from ranktuner.diagnostics.planting import prompt_of
    from ranktuner.diagnostics.tokens import tokens as find

    methods = method or METHODS
    made = source.one_table(methods, output)
    rows = [] if source.table else [r for drawn in source.drawn().values() for r in drawn]
    found = find(made, methods, rows=row, prompts={r.id: prompt_of(r) for r in rows})
    finish(found, output, [f"{len(found.numbers['rows'])} of {found.numbers['of_rows']} rows"])


@app.command()
@takes_source
def gradients(source: Source, method: Methods = None, output: Output = FOLDER) -> None:
    """The shape W(p) of each method's gradient and, with data, where its mass goes over the (p, H) plane.

    Example, the shapes alone: ranktuner diagnose gradients --method dft --method ranktuner
    """
    from ranktuner.diagnostics.gradients import gradients as find

    methods = method or METHODS
    made = source.one_table(methods, output) if source.model or source.data or source.table else None
    found = find(made, methods)
    lines = []
    if plane := found.numbers["plane"]:
        names = list(plane["methods"][0]["quadrants"])
        body = [[m["name"], *(percent(m["quadrants"][name]) for name in names)] for m in plane["methods"]]
        lines = ["share of the gradient mass", *columns(["", *names], body)]
    finish(found, output, lines)


@app.command(name="inference-entropy")
@takes_source
def inference_entropy(
    source: Source,
    samples: Annotated[
        list[Path] | None, typer.Option(help="A sample store that `ranktuner eval` wrote (.jsonl) of --model.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the task's data, as for `ranktuner eval`.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Sample indices 0 to RUNS-1 of each problem.")] = 8,
    output: Output = FOLDER,
) -> None:
    """How open the model is while it answers: exact entropy at each token of its stored samples.

    The paper's protocol is 8 samples a problem at temperature 0.2. Tables of several models can stand side by side:

    Example: ranktuner diagnose inference-entropy --model runs/sft --samples evals/sft/samples/gsm8k.jsonl

    Example: ranktuner diagnose inference-entropy --table sft=a/samples.parquet --table ours=b/samples.parquet
    """
    from ranktuner.diagnostics.inference_entropy import inference_entropy as find
    from ranktuner.diagnostics.making import prompts_of_store, sample_table
    from ranktuner.diagnostics.table import concatenate

    if source.table:
        made = source.tables([], output)
    else:
        if not samples:
            raise InputError("--samples is missing: name a sample store of `ranktuner eval`, or give --table")
        prompts = [prompts_of_store(store, data_dir) for store in samples]
        with source.scorer() as scorer:
            parts = [
                sample_table(scorer, output / f"samples-{store.stem}.parquet", store, asked, runs=runs, name=store.stem)
                for store, asked in zip(samples, prompts, strict=True)
            ]
            made = {scorer.name: concatenate(parts)}
    found = find(made)
    body = [
        [m["name"], *(f"{m[k]['mean']:.3f}" for k in ("entropy_bits", "high_share", "nll")), f"{m['tokens']:,}"]
        for m in found.numbers["models"]
    ]
    finish(found, output, columns(["", "H (bits)", "share H >= 2", "nll", "tokens"], body))


@app.command()
def surface(
    points: Annotated[int, typer.Option(min=2, help="Points of each axis.")] = 41,
    largest: Annotated[float, typer.Option(help="End of both axes, in ranks.")] = 1000.0,
    output: Output = FOLDER,
) -> None:
    """The indicator I over rank and expected rank; needs no model and no data.

    Example: ranktuner diagnose surface -o findings
    """
    from ranktuner.diagnostics.surface import surface as find

    finish(find(points, largest), output)
