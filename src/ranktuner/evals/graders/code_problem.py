"""What the code grader needs of a problem, checked once and put into one shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ranktuner.errors import DataError, nearest
from ranktuner.evals.graders.code_values import ORACLES
from ranktuner.evals.records import Problem


@dataclass(frozen=True)
class CodeProblem:
    """A problem of a code task; the fields are described in `python_code`."""

    id: str
    entry_point: str
    prompt: str
    reference: str | None
    oracle: str | None
    tests: str | None
    inputs: list[list[Any]]
    outputs: list[Any] | None
    atol: float
    base: int


def read_problem(problem: Problem) -> CodeProblem:
    """Return the checked problem; DataError says which field is missing or wrong."""
    meta, gold = problem.meta, problem.gold
    if not isinstance(gold, dict) or ("tests" in gold) == ("inputs" in gold):
        found = sorted(gold) if isinstance(gold, dict) else type(gold).__name__
        raise DataError(f"problem {problem.id}: the gold has {found}; expected either 'tests' or 'inputs'")
    name = meta.get("entry_point")
    if not isinstance(name, str) or not name.isidentifier():
        raise DataError(f"problem {problem.id}: entry_point is {name!r}; expected the name of the function to test")
    oracle = meta.get("oracle")
    if oracle is not None and oracle not in ORACLES:
        raise DataError(f"problem {problem.id}: no oracle {oracle!r}; {nearest(str(oracle), ORACLES)}")
    inputs, outputs = gold.get("inputs", []), gold.get("outputs")
    if not isinstance(inputs, list) or not all(isinstance(i, list) for i in inputs):
        raise DataError(f"problem {problem.id}: 'inputs' must be a list of lists of arguments: [[1, 2], [3, 4]]")
    if outputs is not None and (not isinstance(outputs, list) or len(outputs) != len(inputs)):
        count = len(outputs) if isinstance(outputs, list) else type(outputs).__name__
        raise DataError(f"problem {problem.id}: {len(inputs)} inputs but {count} outputs; expected one for each")
    if "inputs" in gold and not inputs:
        raise DataError(f"problem {problem.id}: no inputs; a problem without a test would accept every answer")
    if "inputs" in gold and outputs is None and meta.get("reference") is None:
        raise DataError(f"problem {problem.id}: inputs without outputs need the field 'reference', a right solution")
    return CodeProblem(
        id=problem.id,
        entry_point=name,
        prompt=meta.get("prompt", problem.question),
        reference=meta.get("reference"),
        oracle=oracle,
        tests=gold.get("tests"),
        inputs=inputs,
        outputs=outputs,
        atol=float(gold.get("atol", 0.0)),
        base=int(gold.get("base", len(inputs))),
    )
