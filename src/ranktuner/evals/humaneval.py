"""HumanEval and HumanEval+ (and a user's own code tasks) as problems that the code grader reads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ranktuner.errors import DataError
from ranktuner.evals.records import Problem

ORACLES = {"find_zero": "root_of_polynomial"}
"""Functions of HumanEval+ whose answers are not unique, and the rule that judges them."""
MENDED = ("assert _poly(*candidate(*inp), inp) <=", "assert abs(_poly(*inp, candidate(*inp))) <=")
"""HumanEval/32 of HumanEval+ in HumanEval's format: no answer can pass its test as written (it unpacks a float)."""


def read_problems(path: Path) -> list[Problem]:
    """Return the problems of a file of HumanEval, or of HumanEval+ in any of its three formats; gzip or not."""
    return [_read(row, path, line) for line, row in rows(path)]


def problem_of_row(row: Mapping[str, Any], number: str) -> Problem:
    """Return the problem of a row: of HumanEval+ (has `plus_input`), HumanEval (`test`), or a user's own task."""
    try:
        if "plus_input" in row:
            return humaneval_plus_problem(row)
        if "test" in row:
            return humaneval_problem(row)
        return user_problem(row, str(row.get("task_id", row.get("id", number))))
    except KeyError as missing:
        raise DataError(f"no field {missing}; the row has {', '.join(map(repr, sorted(row)))}") from None


def humaneval_problem(row: Mapping[str, Any]) -> Problem:
    """Return the problem of one row: right is what the program `test` accepts."""
    broken, mended = MENDED
    return Problem(row["task_id"], row["prompt"], {"tests": row["test"].replace(broken, mended)}, _meta(row))


def humaneval_plus_problem(row: Mapping[str, Any]) -> Problem:
    """Return the problem of one row: right is what agrees with the reference on every base and plus input.

    The row's own `test` field is HumanEval's and would check the base inputs only. Its `contract` made the inputs and
    is not run: it would refuse some of the set's own (in HumanEval/32 and HumanEval/116), which count all the same.
    """
    base, plus = row["base_input"], row["plus_input"]
    gold = {"inputs": [*base, *plus], "atol": float(row["atol"]), "base": len(base)}
    meta = _meta(row)
    if row["entry_point"] in ORACLES:
        meta["oracle"] = ORACLES[row["entry_point"]]
    return Problem(row["task_id"], row["prompt"], gold, meta)


def _meta(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"entry_point": row["entry_point"], "prompt": row["prompt"], "reference": row["canonical_solution"]}


def user_problem(row: Mapping[str, Any], id: str) -> Problem:  # noqa: A002
    """Return the problem of one row of a user's own code task; its columns are named in `graders/python_code.py`."""
    gold = {name: row[name] for name in ("tests", "inputs", "outputs", "atol", "base") if row.get(name) is not None}
    names = ("entry_point", "prompt", "reference", "oracle")
    meta = {name: row[name] for name in names if row.get(name) is not None}
    return Problem(id, row["question"], gold, meta)


def answer_of_reference(problem: Problem) -> str:
    """Return a text that must be graded correct: the problem's own reference solution."""
    if "reference" not in problem.meta:
        raise DataError(
            f"problem {problem.id} has no field 'reference': there is no right answer to try the tests with"
        )
    return str(problem.meta["reference"])


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSONL file, gzip where the name ends in .gz; DataError names file and line."""
    if not path.is_file():
        raise DataError(f"no file {path}: expected JSON lines, one object each")
    opened = gzip.open if path.suffix == ".gz" else open
    line = 0
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            for line, text in enumerate(file, 1):
                if text.strip():
                    row = json.loads(text)
                    if not isinstance(row, dict):
                        raise DataError(f"{path}:{line}: {text.strip()[:80]!r} is not a JSON object")
                    yield line, row
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}:{line + (line == 0)}: not JSON: {error}; expected one JSON object a line") from None
    except (OSError, EOFError) as error:  # a broken gzip file
        raise DataError(f"{path}: cannot be read: {error}") from None


def _read(row: dict[str, Any], path: Path, line: int) -> Problem:
    try:
        return problem_of_row(row, str(line))
    except DataError as error:
        raise DataError(f"{path}:{line}: {error}") from None
