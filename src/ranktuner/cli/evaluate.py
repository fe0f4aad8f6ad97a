"""`ranktuner eval` and `ranktuner grade`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ranktuner.cli.eval_progress import Bar, Say
from ranktuner.errors import InputError, nearest

if TYPE_CHECKING:
    from ranktuner.evals.generators import Generator
    from ranktuner.evals.grade import Limits
    from ranktuner.evals.run import Ask, Plan
    from ranktuner.findings import Finding

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

GENERATORS = ("transformers", "vllm", "server")
PROMPTS = ("auto", "chat", "plain")
OBJECT = "expected a JSON object, such as '{\"top_k\": 0}'"
DTYPES = ("auto", "float32", "bfloat16", "float16")

WHAT, HOW, MODEL, GRADING = "What", "Drawing answers", "The model", "Grading"


def _option(help_: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=panel, **more)


@app.command(name="eval")
def evaluate(
    model: Annotated[str | None, _option("Model folder or hub id; with --server the name to ask for.", WHAT)] = None,
    task: Annotated[
        list[str] | None, _option("Tasks, comma-separated; or the path of your own .toml. --list names them.", WHAT)
    ] = None,
    output: Annotated[Path | None, _option("Folder of the run. [runs/eval/MODEL]", WHAT)] = None,
    data_dir: Annotated[
        Path | None, _option("Folder with the tasks' files; without it they come from the hub.", WHAT)
    ] = None,
    limit: Annotated[int | None, _option("Only the first problems of each task.", WHAT)] = None,
    list_: Annotated[bool, _option("List the tasks and stop.", WHAT, "--list")] = False,
    n: Annotated[int | None, _option("Samples of each problem. [the task's: 16, code 10]", HOW, "--n", "-n")] = None,
    k: Annotated[
        str | None, _option("The k of pass@k, e.g. 1,2,4; none above n. [the task's]", HOW, "--k", "-k")
    ] = None,
    temperature: Annotated[float | None, _option("0 is greedy. [the task's: 1.0; choices 0.8]", HOW)] = None,
    top_p: Annotated[float | None, _option("Share of the probability drawn from. [the task's: 1.0]", HOW)] = None,
    max_new_tokens: Annotated[int | None, _option("Longest answer. [the task's: 4096; choices 3072]", HOW)] = None,
    seed: Annotated[int, _option("Each sample's own seed is derived from it.", HOW)] = 0,
    prompt: Annotated[str, _option("chat, plain, or auto: chat where the model has a chat template.", HOW)] = "auto",
    resume: Annotated[
        bool, _option("Go on with the run in the folder, or set it aside and begin anew.", HOW, "--resume/--fresh")
    ] = True,
    generator: Annotated[
        str | None, _option("transformers, vllm or server. [transformers; server with --server]", MODEL)
    ] = None,
    device: Annotated[str | None, _option("cpu, cuda, cuda:1, ... [a GPU where there is one]", MODEL)] = None,
    dtype: Annotated[str, _option("float32, bfloat16, float16 or auto: as the model was saved.", MODEL)] = "auto",
    batch: Annotated[int | None, _option("Samples written at once. [64 on a CPU, 256 on a GPU]", MODEL)] = None,
    server: Annotated[str | None, _option("Address of an OpenAI-compatible server.", MODEL)] = None,
    key_env: Annotated[str, _option("Variable that holds the server's key.", MODEL)] = "OPENAI_API_KEY",
    concurrency: Annotated[int, _option("Requests to the server at a time.", MODEL)] = 16,
    timeout: Annotated[float, _option("Seconds for one request.", MODEL)] = 600.0,
    patience: Annotated[float, _option("Seconds to wait for a server that went away.", MODEL)] = 300.0,
    server_extra: Annotated[str | None, _option("JSON object added to each request's body.", MODEL)] = None,
    workers: Annotated[int, _option("Grading processes.", GRADING)] = 2,
    grade_seconds: Annotated[
        float | None, _option("Time limit for grading one answer. [the grader's]", GRADING)
    ] = None,
    allow_unsafe: Annotated[
        bool,
        _option("Run code without a sandbox, in a limited process only.", GRADING, "--allow-unsafe"),
    ] = False,
    quiet: Annotated[bool, _option("Print the table only.", WHAT, "--quiet")] = False,
) -> None:
    """Measure a model: n samples a problem, graded, pass@k with intervals.

    Every finished sample is kept at once. Stopped at any moment, the same command goes on from there.

    \b
    Examples:
      ranktuner eval --model ./my-model --task math500,gsm8k --data-dir ./data
      ranktuner eval --model ./my-model --task gsm8k -n 4 -k 1,4 --limit 100 --max-new-tokens 512
      ranktuner eval --server http://localhost:8000 --task humaneval+ --output runs/eval/served
    """
    if list_:
        _print_tasks()
        return
    from ranktuner.evals.grade import Limits
    from ranktuner.evals.run import plan

    chosen = (("generator", generator, GENERATORS), ("prompt", prompt, PROMPTS), ("dtype", dtype, DTYPES))
    for name, value, known in chosen:
        if value is not None and value not in known:
            raise InputError(f"--{name} {value}: unknown; {nearest(value, known)}")
    if server and generator not in (None, "server"):
        raise InputError(f"--server and --generator {generator} were both given: expected one of them")
    if generator == "server" and not server:
        raise InputError("--generator server needs the address: --server http://host:port")
    if model is None and server is None:
        raise InputError("nothing to measure: give --model FOLDER, or --server URL")
    limits = Limits(workers, grade_seconds, allow_unsafe)
    asks = _asks(task, n, k, limit, temperature, top_p, max_new_tokens, seed, data_dir)
    say = Say(quiet)
    plans = [plan(ask) for ask in asks]  # every task's data and settings, before any weights are loaded
    for one in plans:
        for line in one.report.lines():
            say(line)
    if server:
        form = "plain" if prompt == "plain" else "chat"
        extra = _extra(server_extra)
        made = _server(server, model, key_env, form, concurrency, timeout, patience, extra)
    else:
        made = _in_process(generator or "transformers", str(model), device, dtype, batch)
    name = model or getattr(made, "model", "") or "model"
    folder = output or Path("runs") / "eval" / (Path(name.rstrip("/")).name or "model")
    wanted: Any = made.form if prompt == "auto" else prompt
    _run([one.for_form(wanted) for one in plans], made, folder, name, not resume, limits, say)


@app.command()
def grade(
    run: Annotated[Path, typer.Argument(help="Folder of a run of `ranktuner eval`.")],
    again: Annotated[bool, typer.Option("--again", help="Grade everything anew, not only what has no grade.")] = False,
    k: Annotated[str | None, typer.Option("--k", "-k", help="The k of pass@k, e.g. 1,2,4. [the run's]")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the tasks' files are now. [where they were]")] = None,
    workers: Annotated[int, typer.Option(help="Grading processes.")] = 2,
    grade_seconds: Annotated[float | None, typer.Option(help="Time limit for one answer. [the grader's]")] = None,
    allow_unsafe: Annotated[bool, typer.Option("--allow-unsafe", help="Run code without a sandbox.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the table only.")] = False,
) -> None:
    """Grade the stored samples of a run and report; nothing is generated, so it works on unfinished runs too.

    Example: ranktuner grade runs/eval/my-model --again
    """
    from ranktuner.evals.grade import Limits
    from ranktuner.evals.run import grade_again, stored_plans

    say = Say(quiet)
    limits, findings = Limits(workers, grade_seconds, allow_unsafe), []
    for one in stored_plans(run, str(data_dir) if data_dir else None, _numbers(k)):
        with Bar(quiet, "graded") as bar:
            findings.append(grade_again(one, run, again=again, limits=limits, watch=bar, say=say))
    _print_results(findings, run, quiet)


def _run(
    plans: Sequence[Plan],
    made: Generator,
    folder: Path,
    name: str,
    fresh: bool,
    limits: Limits,
    say: Say,
) -> None:
    from ranktuner.evals.run import evaluate as run

    findings = []
    for one in plans:
        with Bar(say.quiet, "sampled") as bar:
            try:
                done = run(one, made, folder, model=name, fresh=fresh, limits=limits, watch=bar, say=say)
            except KeyboardInterrupt:
                bar.ended()
                typer.echo(
                    f"stopped: {bar.done} of {bar.total} samples of {one.task.name} are kept in {folder}. The same "
                    f"command goes on from there; `ranktuner grade {folder}` reports what is finished.",
                    err=True,
                )
                raise typer.Exit(130) from None
        findings.append(done)
    _print_results(findings, folder, say.quiet)


def _asks(
    tasks: Sequence[str] | None,
    n: int | None,
    k: str | None,
    limit: int | None,
    temperature: float | None,
    top_p: float | None,
    max_new_tokens: int | None,
    seed: int,
    data_dir: Path | None,
) -> list[Ask]:
    from ranktuner.evals.run import Ask

    names = [name.strip() for part in tasks or () for name in part.split(",") if name.strip()]
    if not names:
        raise InputError("no task: give --task NAME[,NAME]; `ranktuner eval --list` names them")
    if len(set(names)) < len(names):
        raise InputError(f"--task {','.join(names)}: a task is named twice")
    where = str(data_dir) if data_dir else None
    return [Ask(name, n, _numbers(k), limit, temperature, top_p, max_new_tokens, seed, where) for name in names]


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--k {text}: expected whole numbers with commas, such as 1,2,4") from error


def _extra(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        extra = json.loads(text)
    except ValueError as error:
        raise InputError(f"--server-extra {text}: not JSON ({error}); {OBJECT}") from error
    if not isinstance(extra, dict):
        raise InputError(f"--server-extra {text}: {OBJECT}")
    return extra


def _server(
    url: str,
    model: str | None,
    key_env: str,
    form: Any,
    concurrency: int,
    timeout: float,
    patience: float,
    extra: dict[str, Any],
) -> Any:
    from ranktuner.evals.generators.server import ServerGenerator

    return ServerGenerator(
        url,
        model,
        key=os.environ.get(key_env),
        form=form,
        concurrency=concurrency,
        timeout=timeout,
        patience=patience,
        extra=extra,
    )


def _in_process(kind: str, model: str, device: str | None, dtype: str, batch: int | None) -> Any:
    if kind == "vllm":
        from ranktuner.evals.generators.vllm_engine import VllmGenerator

        return VllmGenerator.load(model, dtype=dtype)
    try:
        import transformers
    except ImportError as error:
        from ranktuner.errors import missing_extra

        raise missing_extra("transformers", "eval", "--generator transformers") from error
    from ranktuner.evals.generators.hf import TransformersGenerator

    transformers.utils.logging.disable_progress_bar()
    return TransformersGenerator.load(model, device=device, dtype=dtype, batch=batch)


def _print_tasks() -> None:
    from ranktuner.evals.tasks import task, tasks

    line = "{:<14} {:<20} {:>8} {:>4}  {:<13} {:>11} {:>10}  {}".format
    typer.echo(line("task", "title", "problems", "n", "k", "temperature", "new tokens", "grader"))
    for one in map(task, tasks()):
        ks, drawn = ",".join(map(str, one.ks)), one.decoding
        typer.echo(
            line(
                one.name, one.title, one.expected or "", one.n, ks, drawn.temperature, drawn.max_new_tokens, one.grader
            )
        )
    typer.echo("\nA task of your own: a .toml beside a .jsonl, --task path/to/it.toml; see docs/evaluation.md.")


def _print_results(findings: Sequence[Finding], folder: Path, quiet: bool) -> None:
    from rich.console import Console

    from ranktuner.evals import tables

    console = Console()
    console.print(tables.terminal(findings))
    for note in [*tables.counted(findings), *tables.notes(findings)]:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    if not quiet:
        typer.echo(f"tables: {folder / 'results.md'}, {folder / 'results.tex'}; Findings: {folder / 'findings'}")
