"""Records -> rows: every shape of training data becomes one, a conversation with a stable id.

    Row(id="train.jsonl:12", messages=({"role": "user", ...}, {"role": "assistant", ...}), weight=1.0)

The first record of a source decides the shape; one that differs is an error that names its line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ranktuner.data.records import LARGE_BYTES, Record
from ranktuner.errors import DataError

Message = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Row:
    """One training conversation, or one that is tokens already."""

    id: str
    """`file:line`, with the file's path inside the folder that was named: the same on every machine."""
    messages: tuple[Message, ...] = ()
    """`{"role", "content"}` and whatever else the chat template reads (`tool_calls`, `name`); `weight` is ours."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tool schemas for the template."""
    weight: float = 1.0
    """Multiplies the weight of every supervised token of the row (the field `weight`)."""
    input_ids: tuple[int, ...] = ()
    """Tokens, for rows that bring them instead of messages."""
    labels: tuple[int, ...] = ()
    """With `input_ids`: the token itself where it is learnt, -100 where not."""
    token_weights: tuple[float, ...] = ()
    """With `input_ids`: one weight a token, or empty."""


@dataclass(frozen=True)
class RowOptions:
    """How records are read; the defaults fit files in one of the known shapes."""

    prompt_field: str | None = None
    """Field with the user's text, where none of the known shapes fits."""
    response_field: str | None = None
    """Field with the text to learn; goes with `prompt_field`."""
    skip_empty: bool = False
    """Pass over rows whose prompt or response is empty, and count them, instead of stopping at the first."""
    limit: int | None = None
    """Read at most this many rows, from the front."""
    large_bytes: int = LARGE_BYTES
    """From which size a file is not read into memory."""
    clean: Callable[[str], str] | None = None
    """Applied to every text that is learnt (a preset's repair, such as GSM8K's calculator marks)."""
    fields: tuple[str, ...] = field(default=())
    """The shape to take where a record fits several; presets fix it."""


SHAPES: dict[tuple[str, ...], str] = {
    ("messages",): "a conversation",
    ("prompt", "completion"): "prompt and completion (texts, or lists of messages)",
    ("instruction", "output"): "instruction, optional input, output",
    ("problem", "solution"): "problem and solution",
    ("question", "answer"): "question and answer",
    ("input_ids",): "tokens, with optional labels and weights",
}
"""The fields that a shape needs -> what it is, in the order in which they are tried."""


def shape_of(record: Record, where: str, options: RowOptions) -> tuple[str, ...]:
    """Return the fields of the shape that a record has; `options` may name them."""
    if (options.prompt_field is None) != (options.response_field is None):
        raise DataError("prompt_field and response_field go together: name both or neither")
    if options.prompt_field and options.response_field:
        return (options.prompt_field, options.response_field)
    if options.fields:
        return options.fields
    for fields in SHAPES:
        if all(name in record for name in fields):
            return fields
    raise DataError(
        f"{where}: the fields {', '.join(map(repr, record))} make none of the known shapes ({shapes_for_people()}); "
        "name the fields: --set data.prompt_field=NAME --set data.response_field=NAME"
    )


def shapes_for_people() -> str:
    """Return the known shapes by their fields, for messages."""
    return "; ".join("+".join(fields) for fields in SHAPES)


def to_row(record: Record, where: str, shape: tuple[str, ...], options: RowOptions) -> Row | None:
    """Return the row of a record, or None for an empty one that `options` says to pass over.

    Args:
        record: one JSON object.
        where: `file:line` for messages; it becomes the row's id.
        shape: the fields of the file's shape, as `shape_of` found them in its first record.
        options: how to read.
    """
    missing = [name for name in shape if record.get(name) is None and not (name in record and options.skip_empty)]
    if missing:
        have = ", ".join(map(repr, record)) or "none"
        other = next((f for f in SHAPES if all(record.get(n) is not None for n in f)), None)
        mixed = f" (this row looks like {'+'.join(other)}: one file, one shape)" if other else ""
        raise DataError(
            f"{where}: the field {missing[0]!r} is missing; the file's first row has the shape "
            f"{'+'.join(shape)}, this one has {have}{mixed}"
        )
    weight = _weight(record.get("weight", 1.0), where)
    if shape == ("input_ids",):
        return _token_row(record, where, weight)
    messages = _messages(record, where, shape, options)
    if messages is None:
        return None
    tools = record.get("tools") or ()
    if not isinstance(tools, (list, tuple)):
        raise DataError(f"{where}: 'tools' must be a list of tool schemas, found a {type(tools).__name__}")
    return Row(where, tuple(messages), tuple(tools), weight)


def _messages(record: Record, where: str, shape: tuple[str, ...], options: RowOptions) -> list[Message] | None:
    """Turn a record of a text shape into messages, check them, clean what is learnt; None for an empty row."""
    if shape == ("messages",):
        messages = _check_messages(record["messages"], where, "messages")
    elif isinstance(record[shape[0]], list):
        # A conversational prompt: its own assistant turns are context and are not learnt.
        prompt = _check_messages(record[shape[0]], where, shape[0])
        messages = [{**m, "weight": 0} for m in prompt] + _check_messages(record[shape[1]], where, shape[1])
    else:
        texts = [record[name] for name in shape]
        if shape == ("instruction", "output") and (extra := record.get("input")):
            texts[0] = f"{texts[0]}\n\n{extra}" if isinstance(texts[0], str) and isinstance(extra, str) else None
        for name, text in zip(shape, texts, strict=True):
            if not isinstance(text, str) and not (text is None and options.skip_empty):
                raise DataError(f"{where}: the field {name!r} must be text, found a {type(record[name]).__name__}")
        messages = [{"role": r, "content": t or ""} for r, t in zip(("user", "assistant"), texts, strict=True)]
    learnt = [m for m in messages if m["role"] == "assistant" and m.get("weight", 1) != 0]
    empty = not learnt or any(_is_empty(m) for m in (*learnt, *[m for m in messages if m["role"] == "user"]))
    if empty and options.skip_empty:
        return None
    if not learnt:
        raise DataError(f"{where}: no assistant turn to learn from; drop the row, or set --set data.skip_empty=true")
    if empty:
        name = next(shape[-1] if m in learnt else shape[0] for m in messages if _is_empty(m))
        raise DataError(f"{where}: the field {name!r} is empty; fill it, or set --set data.skip_empty=true")
    if options.clean is not None:
        messages = [m if m["role"] != "assistant" else {**m, "content": options.clean(m["content"])} for m in messages]
    return messages


def _is_empty(message: Message) -> bool:
    content = message.get("content")
    blank = content is None or (isinstance(content, str) and not content.strip())
    return blank and not message.get("tool_calls")


def _check_messages(messages: object, where: str, name: str) -> list[Message]:
    if not isinstance(messages, (list, tuple)):
        raise DataError(f"{where}: {name!r} must be a list of messages, found a {type(messages).__name__}")
    if not messages:
        raise DataError(f"{where}: {name!r} is an empty list; expected {{'role': .., 'content': ..}} objects")
    for at, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping) or "role" not in message:
            raise DataError(f"{where}: {name}[{at}] needs 'role' and 'content', found {str(message)[:80]}")
        if message["role"] not in ROLES:
            raise DataError(
                f"{where}: {name}[{at}] has the role {message['role']!r}; expected one of {', '.join(ROLES)}"
            )
        content = message.get("content")
        if content is not None and not isinstance(content, (str, list)):
            raise DataError(f"{where}: {name}[{at}]'s content must be text, found a {type(content).__name__}")
        _weight(message.get("weight", 1.0), f"{where}: {name}[{at}]")
    return list(messages)


def _token_row(record: Record, where: str, weight: float) -> Row:
    ids = record["input_ids"]
    labels = record.get("labels") or ids
    weights = record.get("weights") or ()
    for name, values in (("input_ids", ids), ("labels", labels), ("weights", weights)):
        if not isinstance(values, (list, tuple)) or (values and len(values) != len(ids)):
            raise DataError(f"{where}: {name!r} must be a list as long as 'input_ids'")
    if not ids or not all(isinstance(t, int) and t >= 0 for t in ids):
        raise DataError(f"{where}: 'input_ids' must be a list of token ids (whole numbers from 0)")
    wrong = next((i for i, (t, y) in enumerate(zip(ids, labels, strict=True)) if y not in (-100, t)), None)
    if wrong is not None:
        raise DataError(
            f"{where}: labels[{wrong}] is {labels[wrong]}, expected -100 or the token {ids[wrong]}: "
            "labels stand at their own token and are not shifted"
        )
    checked = tuple(_weight(w, f"{where}: weights[{i}]") for i, w in enumerate(weights))
    return Row(where, weight=weight, input_ids=tuple(ids), labels=tuple(labels), token_weights=checked)


def _weight(value: object, where: str) -> float:
    if value is None:
        return 1.0
    if isinstance(value, str):  # a CSV cell
        value = _number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise DataError(f"{where}: 'weight' is {value!r}; expected a finite number from 0 (1 leaves the row as it is)")
    return float(value)


def _number(cell: str) -> float:
    try:
        return float(cell) if cell.strip() else 1.0
    except ValueError:
        return math.nan


def with_suffix(row: Row, suffix: str) -> Row:
    """Return the row with `suffix` on a line of its own after its last user message."""
    last = max((i for i, m in enumerate(row.messages) if m["role"] == "user"), default=None)
    if not suffix or last is None:
        return row
    message = {**row.messages[last], "content": f"{row.messages[last]['content']}\n{suffix}"}
    return replace(row, messages=(*row.messages[:last], message, *row.messages[last + 1 :]))
