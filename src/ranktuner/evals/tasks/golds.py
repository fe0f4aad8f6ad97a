"""Is every gold accepted against itself? Asked when a task is loaded, remembered by checksum.

What cannot be read cannot be answered: a gold that the grader does not take for itself makes its problem unsolvable,
and nobody would see it in the score. So the golds go through the grader, without the shortcut that equal writing is
equal.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ranktuner.evals.records import Problem, Sample

Refused = tuple[str, str]
"""(problem, why)"""


def unaccepted(grader: str, problems: Sequence[Problem]) -> list[Refused]:
    """Return the problems whose gold the grader does not accept against itself, with the reason.

    Mathematics is graded (and remembered); for multiple choice the gold must be one of the choices. The golds of code
    are programs: that their reference solutions pass takes a minute of sandboxes, which loading should not.
    """
    if grader == "choice":
        return [
            (p.id, f"{p.gold!r} is none of the choices") for p in problems if p.gold not in p.meta.get("choices", {})
        ]
    if grader != "math":
        return []
    memo = _cache_folder() / "golds" / f"{_key(problems)}.json"
    try:
        return [(str(ident), str(why)) for ident, why in json.loads(memo.read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        refused = _refused(problems)
        _remember(memo, refused)
        return refused


def _refused(problems: Sequence[Problem]) -> list[Refused]:
    from ranktuner.evals.graders import pool

    rule = "ranktuner.evals.graders.math_answer:check_gold"
    grades = pool.grade(((p, _NO_SAMPLE) for p in problems), rule=rule, workers=min(2, os.cpu_count() or 1))
    return [(p.id, grade.why) for p, grade in zip(problems, grades, strict=True) if grade.verdict != "correct"]


_NO_SAMPLE = Sample("", "", 0, 0, "", "stop", 0, "", {}, "")


def _remember(memo: Path, refused: Iterable[Refused]) -> None:
    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        part = memo.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(list(refused)), encoding="utf-8")
        part.replace(memo)
    except OSError:
        pass  # nothing is lost but seconds: the golds are checked again next time


def _cache_folder() -> Path:
    return Path(os.environ.get("RANKTUNER_CACHE", Path.home() / ".cache" / "ranktuner"))


def _key(problems: Sequence[Problem]) -> str:
    """Return a checksum of the golds and of all that judges them: the graders' own source and their libraries."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].joinpath("graders").glob("*.py")):
        digest.update(path.read_bytes())
    for library in ("math-verify", "latex2sympy2_extended", "sympy"):
        digest.update(_version(library).encode())
    for p in problems:
        meta = {name: p.meta.get(name) for name in ("unit", "tolerance", "tolerance_absolute")}
        line = json.dumps([p.id, p.gold, meta], sort_keys=True, default=str)
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"
