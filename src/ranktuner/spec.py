"""The one-line notation of methods: `name`, `name(key=value, ...)`, `module:attribute(key=value)`.

A method's parameters are the keyword-only arguments of its function: their annotations say which values are allowed
and are read here, so that a parameter is described once.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ranktuner.errors import InputError, nearest

_SPEC = re.compile(r"\s*([\w.:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Range:
    """Allowed values of a number; the ends belong to it unless they are open."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False

    def __contains__(self, value: float) -> bool:
        return value <= self.high and (value > self.low if self.open_low else value >= self.low)

    def __str__(self) -> str:
        left = "" if self.low == -math.inf else f"{'above' if self.open_low else 'at least'} {self.low:g}"
        right = "" if self.high == math.inf else f"at most {self.high:g}"
        return " and ".join(part for part in (left, right) if part) or "any number"


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Split a spec into the name and its parameters, still as text.

    >>> parse("ranktuner(prior=prob, k=0.5)")
    ('ranktuner', {'prior': 'prob', 'k': '0.5'})
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        raise InputError(
            f"method {text!r} cannot be read; expected name or name(key=value, ...), as in sft, eaft(k=20)"
        )
    name, inside = match.group(1), match.group(2)
    parameters: dict[str, str] = {}
    for item in (inside or "").split(","):
        if not item.strip():
            continue
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise InputError(f"method {text!r}: {item.strip()!r} cannot be read; expected key=value")
        if key in parameters:
            raise InputError(f"method {text!r}: {key!r} is given twice")
        parameters[key] = value
    return name, parameters


def parameters_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return name -> (annotation, default) of the keyword-only parameters; a leading underscore is internal."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: (hints.get(name, Any), p.default)
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is p.KEYWORD_ONLY and not name.startswith("_")
    }


def resolve(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the given parameters (text or values) against the function's and fill in the defaults."""
    known = parameters_of(function)
    for key in given:
        if key not in known:
            hint = nearest(key, known) if known else f"{name} has no parameters"
            if key in inspect.signature(function).parameters:
                hint = f"it is positional; make it a keyword: def ...(signals, *, {key}=...)"
            raise InputError(f"{name}: unknown parameter {key!r}; {hint}")
    for key, (_, default) in known.items():
        if key not in given and default is inspect.Parameter.empty:
            raise InputError(f"{name}: parameter {key!r} has no default and was not given; write {name}({key}=...)")
    return {
        key: _value(f"{name}({key}=)", given[key], annotation) if key in given else default
        for key, (annotation, default) in known.items()
    }


def render(name: str, values: Mapping[str, Any], function: Callable[..., Any]) -> str:
    """Return the shortest spec that gives these values: defaults are left out."""
    defaults = {key: default for key, (_, default) in parameters_of(function).items()}
    shown = [f"{key}={text_of(value)}" for key, value in values.items() if value != defaults[key]]
    return f"{name}({', '.join(shown)})" if shown else name


def describe(annotation: Any) -> str:
    """Say in words which values an annotation allows."""
    if get_origin(annotation) is Annotated:
        base, limits = get_args(annotation)
        return f"{describe(base)}, {limits}"
    if get_origin(annotation) is Literal:
        return " | ".join(text_of(value) for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(describe(part) for part in get_args(annotation))
    return {float: "number", int: "whole number", bool: "true | false", NoneType: "none"}.get(annotation, "any")


def text_of(value: Any) -> str:
    """Write a value as a spec has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _value(where: str, given: Any, annotation: Any) -> Any:
    """Read one value against its annotation; the first reading that fits wins."""
    fits, value = _read(given, annotation)
    if not fits:
        options = [v for v in _options(annotation) if isinstance(v, str)]
        hint = f"; {nearest(given, options)}" if options and isinstance(given, str) and not _is_number(given) else ""
        raise InputError(f"{where} is {text_of(given)!r}; expected {describe(annotation)}{hint}")
    return value


def _options(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _options(part)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(given: Any, annotation: Any) -> tuple[bool, Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        base, limits = get_args(annotation)
        fits, value = _read(given, base)
        return fits and value in limits, value
    if origin is Literal:
        return given in get_args(annotation), given
    if origin in (Union, UnionType):
        readings = [_read(given, part) for part in get_args(annotation)]
        return next(((True, value) for fits, value in readings if fits), (False, given))
    if annotation is NoneType:
        return given is None or given == "none", None
    if annotation is bool:
        return (True, given) if isinstance(given, bool) else (given in ("true", "false"), given == "true")
    if annotation in (int, float) and not isinstance(given, bool):
        try:
            number = float(given)
        except (TypeError, ValueError):
            return False, given
        whole = annotation is float or number.is_integer()
        return math.isfinite(number) and whole, annotation(number) if whole and math.isfinite(number) else number
    if annotation is Any:
        return True, float(given) if isinstance(given, str) and _is_number(given) else given
    return isinstance(given, annotation) if isinstance(annotation, type) else False, given
