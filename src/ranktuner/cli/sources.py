"""What every diagnostic command takes: a model and data, or token tables made before; said once for all of them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ranktuner.errors import InputError

if TYPE_CHECKING:
    from ranktuner.data.shapes import Row
    from ranktuner.diagnostics.making import Scorer
    from ranktuner.diagnostics.table import TokenTable
    from ranktuner.findings import Finding

METHODS = ["sft", "dft", "eaft", "talr", "overtone", "ranktuner", "ranktuner(prior=prob)"]


def _folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise InputError(f"-o {path}: a file of that name is there; expected a folder, which is made if need be")
    return path


Output = Annotated[
    Path,
    typer.Option("-o", "--output", callback=_folder, help="Folder for the Findings (.json) and tables (.parquet)."),
]
Methods = Annotated[
    list[str] | None, typer.Option("--method", help=f"A method's spec; repeat. Default: {', '.join(METHODS)}.")
]


@dataclass(frozen=True)
class Source:
    """The options that say what is scored, and how."""

    model: Annotated[str | None, typer.Option(help="Model folder (an adapter's too) or hub id; goes with --data.")] = (
        None
    )
    data: Annotated[
        list[str] | None,
        typer.Option(help="File, folder, hub id or preset (gsm8k:FILE); NAME=... names the set; repeat for several."),
    ] = None
    table: Annotated[
        list[str] | None,
        typer.Option(help="A token table (.parquet) in place of --model and --data; NAME=... names it; repeat."),
    ] = None
    rows: Annotated[int, typer.Option(min=0, help="Rows to draw from each set, by the seed; 0 for all.")] = 200
    seed: Annotated[int, typer.Option(min=0, help="Seed of every choice.")] = 0
    max_length: Annotated[int, typer.Option(min=1, help="Tokens kept of a row, prompt included.")] = 2048
    dtype: Annotated[str, typer.Option(help="auto (the model's own), float32, bfloat16, float16, float64.")] = "auto"
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. Default: CUDA where there is one.")] = None
    template: Annotated[str, typer.Option(help="auto, chat (the tokenizer's own), plain (for base models).")] = "auto"
    prompt_suffix: Annotated[
        str | None, typer.Option(help="Words after the last question, as in training; math: those of its tasks.")
    ] = None
    prompt_field: Annotated[
        str | None, typer.Option(help="Field with the question, where the data has no known shape.")
    ] = None
    response_field: Annotated[str | None, typer.Option(help="Field with the answer; goes with --prompt-field.")] = None

    def __post_init__(self) -> None:
        from ranktuner.data.encode import TEMPLATES

        if self.template not in TEMPLATES:
            raise InputError(f"--template {self.template}: expected one of {', '.join(TEMPLATES)}")

    def open(self, source: str) -> Sequence[Row]:
        """Return the rows of one source, without the empty ones, which no diagnostic can use."""
        from ranktuner.data.presets import open_data
        from ranktuner.data.rows import RowOptions

        options = RowOptions(prompt_field=self.prompt_field, response_field=self.response_field, skip_empty=True)
        rows = open_data([source], options)
        if rows.skipped:
            typer.echo(f"note: {source}: {rows.skipped} rows without a prompt or an answer are left out", err=True)
        return rows  # type: ignore[return-value]  # a sequence in all but name

    def drawn(self) -> dict[str, list[Row]]:
        """Return name of the set -> the rows drawn from it; read before the model is loaded."""
        from ranktuner.diagnostics.planting import draw

        if not self.data:
            raise InputError(
                "no data: give --data FILE (with --model), or --table FILE made by ranktuner diagnose table"
            )
        opened = {name: self.open(source) for name, source in named(self.data).items()}
        return {name: draw(rows, self.rows or len(rows), self.seed) for name, rows in opened.items()}

    def single(self) -> tuple[str, Sequence[Row]]:
        """Return the one source that --data names, and all its rows."""
        if self.table or not self.data or len(self.data) != 1:
            raise InputError("exactly one --data was expected (and --model): the protocol makes its own tables of it")
        (source,) = named(self.data).values()
        return source, self.open(source)

    @contextmanager
    def scorer(self, methods: Sequence[str] = ()) -> Iterator[Scorer]:
        """Load the model and show progress while it is used; a misspelt method is met before."""
        from ranktuner.diagnostics.making import Scorer
        from ranktuner.registry import method

        for spec in methods:
            method(spec)
        if self.model is None:
            raise InputError(
                "--model is missing: name the model folder or hub id that scores the rows, or give --table"
            )
        with suppress(ImportError):  # Scorer.load says what to install
            from transformers.utils import logging

            logging.disable_progress_bar()
        with _progress(self.model) as tell:
            yield Scorer.load(
                self.model,
                dtype=self.dtype,
                device=self.device,
                methods=tuple(methods),
                max_length=self.max_length,
                template=self.template,
                prompt_suffix=self.prompt_suffix,
                tell=tell,
            )

    def tables(self, methods: Sequence[str], output: Path) -> dict[str, TokenTable]:
        """Return name -> token table: those that --table names, or new ones in the output folder."""
        from ranktuner.diagnostics.table import read_table

        if self.table:
            if self.data or self.model:
                raise InputError("--table stands in place of --model and --data: give one or the other")
            return {name: read_table(path) for name, path in named(self.table, "--table").items()}
        drawn, made = self.drawn(), {}
        sources = named(self.data or ())
        with self.scorer(methods) as scorer:
            for name, rows in drawn.items():
                made[name] = scorer.table(output / f"{name}.parquet", rows, name, data=sources[name], seed=self.seed)
        for name, table in made.items():
            _say_lost(name, table)
        return made

    def one_table(self, methods: Sequence[str], output: Path) -> TokenTable:
        """Return the only table, for diagnostics that show one set."""
        made = self.tables(methods, output)
        if len(made) != 1:
            raise InputError(f"this diagnostic shows one set, found {', '.join(made)}: give one --data or --table")
        return next(iter(made.values()))


def takes_source(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose first parameter is a Source, the options of Source in its place."""
    names = [f.name for f in fields(Source)]

    def run(**given: Any) -> None:
        command(Source(**{name: given.pop(name) for name in names}), **given)

    own = list(inspect.signature(command).parameters.values())[1:]
    hints = get_type_hints(Source, include_extras=True) | get_type_hints(command, include_extras=True)
    shared = [(f.name, f.default) for f in fields(Source)] + [(p.name, p.default) for p in own]
    kind = inspect.Parameter.KEYWORD_ONLY
    assert all(default is not MISSING for _, default in shared)
    parameters = [inspect.Parameter(name, kind, default=default, annotation=hints[name]) for name, default in shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def named(sources: Sequence[str], what: str = "--data") -> dict[str, str]:
    """Return name -> source of `NAME=SOURCE`, or of a bare source, which is then called by its file's name."""
    found: dict[str, str] = {}
    for source in sources:
        name, equals, rest = source.partition("=")
        if not equals or "/" in name:
            preset, _, path = source.rpartition(":")
            place = Path(path)
            # Many sets call their files train or test: the folder then says which.
            plain = place.stem not in ("train", "test", "data") or not place.parent.name
            name, rest = preset or (place.stem if plain else place.parent.name), source
        if name in found:
            raise InputError(f"{what} {source}: there is a set named {name!r} already; name it: {what} OTHER={rest}")
        found[name] = rest
    return found


@contextmanager
def _progress(model: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show rows, tokens and speed of the table being made, on the error stream."""
    from rich.console import Console

    started: dict[str, float] = {}
    with Console(stderr=True).status(f"loading {model}") as status:

        def tell(name: str, rows: int, tokens: int) -> None:
            since = time.monotonic() - started.setdefault(name, time.monotonic())
            speed = f", {tokens / since:,.0f} tokens/s" if since > 1 else ""
            status.update(f"{name}: {rows:,} rows, {tokens:,} tokens{speed}")

        yield tell


def _say_lost(name: str, table: TokenTable) -> None:
    for count, what in (("dropped", "rows lost their whole answer"), ("truncated", "rows were cut")):
        if table.meta.get(count):
            limit = table.meta.get("max_length")
            typer.echo(f"note: {name}: {table.meta[count]} {what} at --max-length {limit}", err=True)


def finish(finding: Finding, output: Path, lines: Sequence[str] = ()) -> None:
    """Save a Finding; print what it says, where it is, and how to see it."""
    path = finding.save(output / f"{finding.kind}.json")
    typer.echo(f"{finding.title} ({finding.n:,} {finding.protocol['unit']})")
    for line in lines:
        typer.echo(f"  {line}")
    typer.echo(f"{path}; to see it: ranktuner report {output} -o report.html")


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(f"{cell:{'<' if i == 0 else '>'}{widths[i]}}" for i, cell in enumerate(row)) for row in [head, *rows]
    ]


def percent(value: float | None) -> str:
    """Return a share for people; `-` where there is none."""
    return "-" if value is None else f"{value:.1%}"
