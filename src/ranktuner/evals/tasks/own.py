"""A user's own task: a small TOML next to its data. docs/evaluation.md has an example of each kind."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranktuner.errors import DataError, InputError, nearest
from ranktuner.evals.graders import GRADERS
from ranktuner.evals.records import Problem
from ranktuner.evals.tasks import rows
from ranktuner.evals.tasks.catalog import CHOICE, CODE, MATH
from ranktuner.evals.tasks.task import Decoding, Prompt, Reader, Row, Source, Task

KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str, "title": str, "data": str, "grader": str, "question": str, "answer": str, "id": str, "choices": str,
    "expected": int, "tolerance": (int, float), "licence": str, "n": int, "ks": list, "prompt": dict, "decoding": dict,
}  # fmt: skip
PROMPT_KEYS: dict[str, type | tuple[type, ...]] = {"chat": str, "plain": str, "system": str, "stop": list}
DECODING_KEYS: dict[str, type | tuple[type, ...]] = {
    "temperature": (int, float),
    "top_p": (int, float),
    "max_new_tokens": int,
}
PROMPTS = {"math": MATH, "choice": CHOICE, "code": CODE}


def read_toml(path: Path) -> Task:
    """Return the task that a TOML file describes; everything wrong in it is named with the file and the nearest key."""
    values = _parse(path)
    _check_keys(values, KEYS, str(path))
    for name in ("name", "data"):
        if name not in values:
            raise DataError(f"{path}: no key {name!r}; a task needs at least name, data and grader")
    grader = values.get("grader", "math")
    if grader not in GRADERS:
        raise DataError(f"{path}: grader is {grader!r}; {nearest(grader, GRADERS)}")
    n = values.get("n", 10 if grader == "code" else 16)
    ks = tuple(values.get("ks", [k for k in ((1, 10) if grader == "code" else (1, 2, 4, 8, 16)) if k <= n]))
    if n < 1 or not ks or not all(isinstance(k, int) and 1 <= k <= n for k in ks):
        raise DataError(f"{path}: n = {n}, ks = {list(ks)}; expected n of at least 1 and every k between 1 and n")
    data = path.parent / values["data"]
    return Task(
        name=_name(values["name"], path),
        title=values.get("title", values["name"]),
        grader=grader,
        prompt=_prompt(values.get("prompt", {}), PROMPTS[grader], path),
        decoding=_decoding(values.get("decoding", {}), path),
        n=n,
        ks=ks,
        expected=values.get("expected"),
        source=Source((data.name,), licence=values.get("licence", ""), get=f"{path} names it as its data"),
        read=_reader(values, grader),
        note=f"A user's own task: {path}",
        folder=data.parent,
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"there is no task file {path}; give the path of a .toml file, or the name of a task"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML: {error}") from None


def _check_keys(values: Mapping[str, Any], keys: Mapping[str, type | tuple[type, ...]], where: str) -> None:
    for name, value in values.items():
        if name not in keys:
            raise DataError(f"{where}: unknown key {name!r}; {nearest(name, keys)}")
        if not isinstance(value, keys[name]) or isinstance(value, bool):
            kinds = keys[name] if isinstance(keys[name], tuple) else (keys[name],)
            wanted = " or ".join(kind.__name__ for kind in kinds)  # type: ignore[union-attr]
            raise DataError(f"{where}: {name} is {value!r}; expected {wanted}")


def _name(name: str, path: Path) -> str:
    if not name or not all(c.isalnum() or c in "-_+." for c in name):
        raise DataError(f"{path}: name is {name!r}; expected letters, digits, '-', '_', '+' and '.' (it names files)")
    return name


def _prompt(values: Mapping[str, Any], default: Prompt, path: Path) -> Prompt:
    _check_keys(values, PROMPT_KEYS, f"{path}, [prompt]")
    for name in ("chat", "plain"):
        if name in values and "{question}" not in values[name]:
            raise DataError(f"{path}, [prompt]: {name} has no {{question}}, where the question goes")
    values = {**values, **({"stop": tuple(values["stop"])} if "stop" in values else {})}
    if "chat" in values and "plain" not in values:
        values = {**values, "plain": values["chat"] + "\n"}
    return replace(default, **values)


def _decoding(values: Mapping[str, Any], path: Path) -> Decoding:
    _check_keys(values, DECODING_KEYS, f"{path}, [decoding]")
    decoding = replace(Decoding(temperature=1.0, top_p=1.0, max_new_tokens=4096), **values)
    if decoding.temperature < 0 or not 0 < decoding.top_p <= 1 or decoding.max_new_tokens < 1:
        raise DataError(
            f"{path}, [decoding]: {decoding}; expected temperature of at least 0, top_p above 0 and at most 1, "
            "max_new_tokens of at least 1"
        )
    return decoding


def _reader(values: Mapping[str, Any], grader: str) -> Reader:
    """Return the function that makes a problem of a row of this task."""
    if grader == "code":
        return rows.code
    question, answer = values.get("question", "question"), values.get("answer", "answer")
    ident, choices = values.get("id", "id"), values.get("choices", "choices")
    meta = {"tolerance": float(values["tolerance"])} if "tolerance" in values else {}

    def read(row: Row, number: str) -> Problem:
        name = str(row[ident]) if row.get(ident) is not None else number
        text = rows.text_field(row, question)
        if grader == "choice":
            gold, listed = _choice(rows.field(row, answer), rows.field(row, choices))
            return Problem(name, text, gold, {"choices": listed})
        found = str(rows.field(row, answer))
        gold = rows.clean_gold(found)
        if not gold:
            raise DataError(f"field {answer!r} is {found!r}; expected an answer")
        return Problem(name, text, gold, {**meta, **({"gold_as_found": found} if gold != found else {})})

    return read


def _choice(answer: Any, choices: Any) -> tuple[str, dict[str, str]]:
    """Return (letter, choices by letter): choices as list or mapping from letters; the answer as letter or text."""
    if isinstance(choices, Mapping):
        listed = {str(label).upper(): str(text) for label, text in choices.items()}
    elif isinstance(choices, list) and 2 <= len(choices) <= len(rows.LETTERS):
        listed = dict(zip(rows.LETTERS, map(str, choices), strict=False))
    else:
        raise DataError(
            f"choices are {choices!r:.60}; expected a list of 2 to {len(rows.LETTERS)} texts, or letter: text"
        )
    if str(answer).upper() in listed:
        return str(answer).upper(), listed
    letters = [label for label, text in listed.items() if text == str(answer)]
    if len(letters) != 1:
        raise DataError(
            f"answer {answer!r:.60} is neither one of the letters {', '.join(listed)} nor one of the choices"
        )
    return letters[0], listed
