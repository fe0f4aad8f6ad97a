"""Whether this machine can do a recipe at all: packages and a sandbox, asked before the first cell."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from ranktuner.compare.cells import Cells
from ranktuner.errors import UnsupportedError, missing_extra

REPORTING = ("jinja2", "altair", "vl_convert")


def ready(cells: Cells, report: bool) -> None:
    """Refuse what is sure to fail on this machine.

    Args:
        cells: of the recipe.
        report: whether table and report are made here.
    """
    for package, extra, purpose in _needed(cells, report):
        if find_spec(package) is None:
            raise missing_extra(package, extra, purpose)
    for section in cells.recipe.eval:
        if "code" in [cells.grader(name) for name in section.tasks]:
            from ranktuner.evals.sandbox import choose

            try:
                choose(section.allow_unsafe)
            except UnsupportedError as error:
                said = str(error).replace("--allow-unsafe", "--set eval.allow_unsafe=true")
                raise UnsupportedError(f"tasks {', '.join(section.tasks)}: {said}") from None


def _needed(cells: Cells, report: bool) -> Iterator[tuple[str, str, str]]:
    recipe = cells.recipe
    yield "transformers", "train", "Comparing models"
    if cells.rows:
        for package in ("trl", "accelerate", "peft", "datasets"):
            yield package, "train", "Training the rows of a recipe"
    graders = {cells.grader(name) for one in recipe.eval for name in one.tasks}
    if "math" in graders:
        yield "math_verify", "eval", "Grading mathematics"
    if any(one.generator == "vllm" for one in recipe.eval):
        yield "vllm", "vllm", "eval.generator=vllm (or --set eval.generator=transformers, slowly: the same protocol)"
    if any(one.kind != "surface" for one in recipe.diagnose):
        yield "pyarrow", "train", "Token tables of diagnostics"
    if report:
        for package in REPORTING:
            yield package, "report", "The report"
