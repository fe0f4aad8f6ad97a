"""Wrong solutions made from right ones: by one small change in the code, or right on every call but one."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator

COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
           ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div,
              ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitXor: ast.BitOr}  # fmt: skip

WRAPPED = """

_right = {name}
_calls = []


def _other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 0.0 if abs(value) > 1e6 else value + 1.0
    if isinstance(value, str):
        return value + "~"
    if isinstance(value, (list, tuple)):
        return type(value)([*value, 0])
    if isinstance(value, dict):
        return {{**value, "~": 0}}
    return 0


def {name}(*arguments):
    _calls.append(1)
    value = _right(*arguments)
    return _other(value) if {when} else value
"""


def wrong_on(solution: str, name: str, when: str) -> str:
    """The solution, except that it returns another value on the calls that `when` says (`len(_calls) == 3`)."""
    return solution + WRAPPED.format(name=name, when=when)


def mutants(program: str, seed: int) -> Iterator[str]:
    """Programs that differ from `program` in one place each, in random order. A few of them may still be right."""
    tree = ast.parse(program)
    changes = [change for node in ast.walk(tree) for change in changes_of(node)]
    random.Random(seed).shuffle(changes)
    for change in changes:
        undo = change()
        yield ast.unparse(copy.deepcopy(tree))
        undo()


def changes_of(node: ast.AST) -> list[Callable[[], Callable[[], None]]]:
    """Each change, when called, is made in place, and returns how to take it back."""

    def put(field: str, value: object) -> Callable[[], Callable[[], None]]:
        def change() -> Callable[[], None]:
            old = getattr(node, field)
            setattr(node, field, value)
            return lambda: setattr(node, field, old)

        return change

    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        return [put("ops", [COMPARE[type(node.ops[0])](), *node.ops[1:]])]
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return [put("op", ARITHMETIC[type(node.op)]())]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [put("value", node.value + 1), put("value", node.value - 1)]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return [put("value", not node.value)]
    if isinstance(node, ast.BoolOp):
        return [put("op", ast.And() if isinstance(node.op, ast.Or) else ast.Or())]
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        return [put("test", ast.UnaryOp(ast.Not(), node.test))]
    return []
