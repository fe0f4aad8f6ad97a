"""From the text of an answer to the program that is run. It runs inside: parsing hostile text is not safe outside.

In order, the first that parses and gives the function a body of its own is taken:

1. The last fenced block (``` or ~~~; marked python, py, python3, or unmarked) that defines the function at its top
   level: a corrected version comes after the first try. A fence that is never closed runs to the end.
2. The whole text, where it defines the function itself; or the text from its first line of code on.
3. A continuation: the prompt and the text behind it; where that does not parse, with the first line indented as a
   body (chat models and `strip()` lose that). The same with fenced blocks.

In 1 and 2 the prompt goes before, so that its imports and helpers are there; the block's own definitions come later
and win. A tail that does not parse (prose after the code, an answer cut short) is dropped line by line. Behind the
function only definitions, imports, and assignments to names that the definitions use are kept: other statements there
are examples of use, which may ask for input or fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

FENCE = re.compile(
    r"^[ \t]*(?P<mark>```+|~~~+)[ \t]*(?P<language>[\w+.-]*)[^\n]*\n(?P<code>.*?)(?:^[ \t]*(?P=mark)[ \t]*$|\Z)",
    re.M | re.S,
)
CODE = re.compile(r"^(?:import|from|def|class|@)\b", re.M)
PYTHON = {"", "python", "py", "python3", "py3"}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MAX_CHARACTERS = 400_000


class NoProgram(Exception):  # noqa: N818 - not an error
    """The text holds no program that defines the function; the message says how far it came."""


def program_of(text: str, prompt: str, entry_point: str) -> tuple[str, str]:
    """Return the program to run, and the part of the answer that it takes (for people to read).

    text: the model's answer, or a whole program of another harness
    prompt: the code that stands before a continuation
    entry_point: the function's name
    """
    if len(text) > MAX_CHARACTERS:
        raise NoProgram(f"the answer has {len(text)} characters, more than {MAX_CHARACTERS}")
    problem = ""
    for before, code, least_lines in readings(text, prompt, entry_point):
        kept, error = parsing_prefix(before, code, entry_point, least_lines)
        if kept is not None:
            return before + kept, kept
        problem = problem or error
    raise NoProgram(problem or f"no code that defines {entry_point}")


def readings(text: str, prompt: str, entry_point: str) -> Iterator[tuple[str, str, int]]:
    """Yield (what goes before, the code, lines of it that must stay) in the order in which they are tried."""
    text = text.replace("\r\n", "\n")
    blocks = [m["code"] for m in FENCE.finditer(text) if m["language"].lower() in PYTHON]
    heads = re.compile(rf"^(?:async +)?(?:def|class) +{re.escape(entry_point)}\b|^{re.escape(entry_point)} *=", re.M)
    prelude = prompt_alone(prompt)
    for block in reversed(blocks):
        if match := heads.search(block):
            yield prelude, block, block.count("\n", 0, match.start()) + 1
    if not blocks and (match := heads.search(text)):
        starts = [m.start() for m in CODE.finditer(text, 0, match.start())]
        for start in dict.fromkeys([0, *starts[:1], match.start()]):  # prose may stand before it, without a fence
            yield prelude, text[start:], text.count("\n", start, match.start()) + 1
    for body in [text] if not blocks else reversed(blocks):
        yield prompt, body, 1
        first = body.lstrip("\n")
        indent = "    " if not first.startswith((" ", "\t")) else ""
        yield prompt.rstrip() + "\n", indent + first, 1


def prompt_alone(prompt: str) -> str:
    """Return the prompt as a program of its own (its last function without a body), or nothing where it is not code."""
    for whole in (prompt.rstrip() + "\n", prompt.rstrip() + "\n    pass\n"):
        if isinstance(parse(whole), ast.Module):
            return whole
    return ""


def parse(program: str) -> ast.Module | SyntaxError | None:
    """Return the tree; None or the error where it does not parse."""
    try:
        return ast.parse(program)
    except SyntaxError as error:
        return error if error.lineno else None
    except (ValueError, RecursionError, MemoryError):  # null bytes, nesting beyond the parser's stack
        return None


def parsing_prefix(before: str, code: str, entry_point: str, least_lines: int) -> tuple[str | None, str]:
    """Return the longest beginning of `code` that parses behind `before`, without examples; or None and the error."""
    lines = code.split("\n")
    ahead = before.count("\n")
    error = ""
    count = len(lines)
    while count >= least_lines:
        tree = parse(before + "\n".join(lines[:count]) + "\n")
        if isinstance(tree, ast.Module):
            kept = kept_lines(tree, entry_point, ahead)
            if kept is None:
                return None, error or f"no body for {entry_point}"
            return "\n".join(line for number, line in enumerate(lines[:count], 1) if number in kept) + "\n", ""
        at = (tree.lineno or 0) - ahead - 1 if tree is not None else count - 1
        error = error or (f"SyntaxError: {tree.msg} (line {at + 1} of the code)" if tree else "the code does not parse")
        count = at if least_lines <= at < count else count - 1
    return None, error


def kept_lines(tree: ast.Module, entry_point: str, ahead: int) -> set[int] | None:
    """Return the numbers of the lines of the code (which stands behind `ahead` lines) to run.

    All up to the end of the function; behind it the definitions, imports, and assignments to names that the definitions
    use. None: the function has no body there.
    """
    kept: set[int] | None = None
    wanted = set().union(*(names_from_outside(node) for node in tree.body if isinstance(node, DEFINITIONS)))
    for node in tree.body:
        last = (node.end_lineno or 0) - ahead
        if kept is None:
            if (
                last > 0
                and defines(node, entry_point)
                and not (isinstance(node, ast.FunctionDef) and not has_body(node, ahead))
            ):
                kept = set(range(1, last + 1))
        elif isinstance(node, (*DEFINITIONS, ast.Import, ast.ImportFrom)) or any(defines(node, n) for n in wanted):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            kept |= set(range(first - ahead, last + 1))
    return kept


def names_from_outside(definition: ast.AST) -> set[str]:
    """Return the names that a definition reads and does not set itself."""
    names = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    return {node.id for node in names} - own - {node.arg for node in ast.walk(definition) if isinstance(node, ast.arg)}


def defines(node: ast.stmt, name: str) -> bool:
    """Say whether a statement at top level gives `name` a value."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name == name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)


def has_body(node: ast.FunctionDef, ahead: int) -> bool:
    """Say whether some statement of the function other than a docstring stands in the answer."""
    rest = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return any((n.end_lineno or 0) > ahead for n in rest)
