"""The settings as a table for the documents: names, values, defaults and their origin, from the schema itself."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ranktuner.train.config import FLAGS, TrainConfig


def settings_tables() -> str:
    """Return one markdown table a section of the configuration."""
    flags = {path: f"--{flag.replace('_', '-')}" for flag, path in FLAGS.items()}
    return tables_of([("", TrainConfig), *_sections()], flags, "what it does, and whose default it is")


def tables_of(sections: Sequence[tuple[str, type[BaseModel]]], flags: Mapping[str, str], head: str) -> str:
    """Return one markdown table a section.

    Args:
        sections: name ("" for the top level) and schema.
        flags: dotted name of a setting -> its flag on the command line.
        head: of the last column.
    """
    parts: list[str] = []
    for name, schema in sections:
        parts += [f"### {name or 'top level'}", "", f"| setting | default | {head} |"]
        parts.append("| --- | --- | --- |")
        for key, field in schema.model_fields.items():
            if _section(field.annotation):
                continue
            path = f"{name}.{key}" if name else key
            flag = f"<br>`{flags[path]}`" if path in flags else ""
            default = "required" if field.default is PydanticUndefined else f"`{_text(field.default)}`"
            about = " ".join((field.description or "").split()).replace("|", "\\|")
            parts.append(f"| `{path}`{flag} | {default} | {about} {_values(field.annotation)}|")
        parts.append("")
    return "\n".join(parts)


def _sections() -> list[tuple[str, type[BaseModel]]]:
    return [(key, inner) for key, f in TrainConfig.model_fields.items() if (inner := _section(f.annotation))]


def _section(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _values(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "One of " + ", ".join(f"`{v}`" for v in get_args(annotation)) + ". "
    if get_origin(annotation) in (Union, types.UnionType):
        return "".join(_values(part) for part in get_args(annotation))
    return ""


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else "[]" if value == [] else f"{value}"
