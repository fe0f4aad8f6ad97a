"""Comparing what a candidate returned with what was expected: plain values, in the grader's own process.

Both sides are rebuilt builtins (see `inside/plain.py`), so `==` is Python's own and nobody's override. The rule is
evalplus's: equal, or, where the expected value is a float or a flat list or tuple of floats (or the problem sets
`atol`), of the same type and length and within `|a - b| <= atol + 1e-7 |b|`, atol 1e-6 unless the problem says
otherwise. As in Python, 1 equals True and 1.0, and a list never equals a tuple.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

RTOL = 1e-7
FLOAT_ATOL = 1e-6


def same(found: Any, expected: Any, atol: float = 0.0) -> bool:
    """Say whether `found` counts as `expected`."""
    try:
        if found == expected:
            return True
    except RecursionError:
        return False
    tolerance = atol or (FLOAT_ATOL if is_floats(expected) else 0.0)
    return tolerance > 0 and type(found) is type(expected) and close(found, expected, tolerance)


def is_floats(value: Any) -> bool:
    """Say whether the value is a float, or a list or tuple of nothing but floats."""
    return isinstance(value, float) or (isinstance(value, (list, tuple)) and all(isinstance(v, float) for v in value))


def close(found: Any, expected: Any, atol: float) -> bool:
    """Say whether two values of numbers, nested alike, agree within the tolerance; anything but numbers does not."""
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(found) == len(expected)
            and all(close(f, e, atol) for f, e in zip(found, expected, strict=True))
        )
    if not isinstance(found, (int, float)) or not isinstance(expected, (int, float)):
        return False
    try:
        return found == expected or abs(found - expected) <= atol + RTOL * abs(expected)
    except OverflowError:  # an integer beyond the floats against a float
        return False


def root_of_polynomial(arguments: list[Any], found: Any, atol: float) -> bool:
    """HumanEval/32: any root will do. `arguments[0]` are the coefficients, lowest first."""
    if not isinstance(found, (int, float)):
        return False
    try:
        value = sum(coefficient * math.pow(found, i) for i, coefficient in enumerate(arguments[0]))
        return bool(abs(value) <= atol)
    except (OverflowError, ValueError):
        return False


ORACLES: dict[str, Callable[[list[Any], Any, float], bool]] = {"root_of_polynomial": root_of_polynomial}
"""Rules in the place of equality, by the name in `Problem.meta["oracle"]`: (arguments, found, atol) -> right."""


def listed(value: Any) -> Any:
    """Return the value with tuples as lists: outputs that were written as JSON cannot tell them apart."""
    if isinstance(value, (list, tuple)):
        return [listed(v) for v in value]
    return {k: listed(v) for k, v in value.items()} if isinstance(value, dict) else value


def shown(value: Any, width: int = 120) -> str:
    """Return the value for people, shortened in the middle."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return "a value with a very long integer"
    return text if len(text) <= width else f"{text[: width * 2 // 3]} ... {text[-width // 4 :]}"


def shown_call(name: str, arguments: list[Any], width: int = 120) -> str:
    """Return `name(arg, ...)` for people."""
    return f"{name}({shown(list(arguments), width)[1:-1]})"
