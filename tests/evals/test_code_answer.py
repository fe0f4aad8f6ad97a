"""From an answer to a program: fenced blocks, whole programs, continuations, and what is none of them."""

from __future__ import annotations

from typing import Any

import pytest

from ranktuner.evals.inside.answer import NoProgram, program_of

PROMPT = '''from math import sqrt


def helper(n):
    return n + 1


def area(side: float) -> float:
    """Area of a square.

    >>> area(2.0)
    4.0
    """
'''
LAST = PROMPT.split("\n\n\n")[2]


def run(text: str, prompt: str = PROMPT) -> Any:
    """area(3.0) by the program that is found in the text."""
    names: dict[str, Any] = {}
    exec(program_of(text, prompt, "area")[0], names)
    return names["area"](3.0)


FENCED = "```python\ndef area(side):\n    return side * side\n```"
ANSWERS = {
    "a continuation": "    return side * side\n",
    "a continuation without its indentation": "return side * side",
    "a first line without indentation": "total = 0\n    total += side ** 2\n    return total",
    "a continuation that goes on": "    return square(side)\n\ndef square(x):\n    return x * x\n",
    "a continuation and examples that fail": "    return side ** 2\n\nassert area(2) == 5\nprint(area(input()))\n",
    "a continuation followed by prose": "    return side ** 2\n\nThis squares the side, doesn't it?\n",
    "a continuation with a helper behind an example": "    return sq(side)\nprint('x')\n\ndef sq(x): return x * x\n",
    "a continuation cut short in the next function": "    return side ** 2\n\ndef other(x:\n    if x",
    "a block": FENCED,
    "a block amid prose": f"Sure! Here it is:\n\n{FENCED}\n\nIt multiplies `side` by itself.",
    "a block without a language": FENCED.replace("python", ""),
    "a block with tildes": FENCED.replace("```", "~~~"),
    "a block with Windows line ends": FENCED.replace("\n", "\r\n"),
    "an indented block of a list": "1. So:\n\n   ```python\ndef area(side):\n    return side * side\n   ```\n",
    "the last of two tries": f"```python\ndef area(side):\n    return 4 * side\n```\nWrong. Better:\n{FENCED}",
    "the solution and then a block of usage": f"{FENCED}\nUse it:\n```python\nprint(area(2))\nassert False\n```",
    "a block that is never closed": FENCED.removesuffix("```"),
    "a block that takes the prompt's names for granted":
        "```python\ndef area(side):\n    return sqrt(side ** 4) + helper(-1)\n```",
    "a block with only the body": "```python\n    return side * side\n```",
    "a block with only the body, not indented": "```\nreturn side * side\n```",
    "a block that runs itself": FENCED.replace("\n```", "\n\nif __name__ == '__main__':\n    print(area('x'))\n```"),
    "a block that defines a lambda": "```py\narea = lambda side: side * side\n```",
    "another language and then Python": "```json\n{}\n```\n" + FENCED,
    "a whole program without a fence": "import math\n\ndef area(side):\n    return math.pow(side, 2)\n",
    "a whole program with the prompt before it": PROMPT + "    return side ** 2\n",
    "the prompt's function repeated with a body": LAST + "    return side ** 2\n",
    "prose and then a program, without a fence": "Here is the function:\n\ndef area(side):\n    return side * side\n",
    "prose, imports and a program, without a fence":
        "Sure, from me to you!\nfrom math import pow as power\n\ndef area(side):\n    return power(side, 2)\n",
    "a constant behind": "    return side ** TWO\n\nTWO = 2\n",
    "examples that assign": "    result = side ** 2\n    return result\n\nresult = area(input())\nx: int = 1 / 0\n",
    "thoughts with a wrong draft": "<think>\n```python\ndef area(side):\n    return 0\n```\n</think>\n" + FENCED,
    "a decorated helper behind":
        "    return twice(side) * side / 2\n\nimport functools\n@functools.cache\ndef twice(x): return 2 * x\n",
}  # fmt: skip


@pytest.mark.parametrize("name", list(ANSWERS))
def test_the_program_is_found(name: str) -> None:
    assert run(ANSWERS[name]) == pytest.approx(9.0)


NONE = {
    "": "no code that defines area|no body for area",
    "I cannot help with that, sorry.": "SyntaxError",
    "```python\n\n```": "no body for area",
    "```python\ndef area(side):\n```": "SyntaxError",
    "# only a comment": "no body for area",
    '    """Another docstring."""\n': "no body for area",
    "def area(side):\n    return (side *": "SyntaxError",
    "\x00\x01": "does not parse",
    "x" * 500_000: "500000 characters",
}


@pytest.mark.parametrize("text", list(NONE), ids=lambda t: repr(t[:30]))
def test_no_program_is_said_with_the_reason(text: str) -> None:
    with pytest.raises(NoProgram, match=NONE[text]):
        program_of(text, PROMPT, "area")


def test_a_task_in_prose_needs_no_code_before_the_answer() -> None:
    assert run(FENCED, prompt="Write a function that gives the area of a square.") == 9.0
    assert run(FENCED, prompt="") == 9.0


def test_what_is_shown_is_the_part_that_the_answer_brought() -> None:
    program, shown = program_of(f"Here:\n{FENCED}\nprint(1)", PROMPT, "area")
    assert shown == "def area(side):\n    return side * side\n"
    assert program.endswith(shown)
    assert program.startswith("from math import sqrt")


def test_a_long_tail_of_prose_does_not_take_long() -> None:
    text = "    return side ** 2\n" + "and so (it goes on, and on\n" * 3000
    assert run(text) == 9.0
