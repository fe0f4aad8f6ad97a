"""Plain data over a pipe: Python values of the builtin types to JSON and back, and nothing else.

A value that leaves the candidate's process is rebuilt here from builtins alone. So whatever class it had there, with
whatever `__eq__`, what is compared outside is an honest int, str, list, ... `pack` runs beside the candidate and is
not trusted; `unpack` runs outside on bytes that may be hostile: it calls nothing but constructors of builtins, and
answers anything malformed with PlainError.

None, bool, str, float and small int stand for themselves, a list is a JSON array; every other type is an object with
one key, the type's name. Subclasses become their builtin (Counter a dict, namedtuple a tuple, numpy.float64 a float),
since they compare equal to it. Iterators and generators are run out, and rebuilt as an iterator over their items.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 100
MAX_NODES = 2_000_000
CHARACTERS_A_NODE = 16
TOO_MUCH = f"more than {MAX_NODES:,} values or {CHARACTERS_A_NODE * MAX_NODES:,} characters"
BIG = 1 << 62
"""Above it an integer travels in hexadecimal: Python refuses decimal text of more than 4,300 digits."""


MAX_HARD_KEYS = 5_000
HASHED = {"set", "frozenset", "dict"}


class PlainError(ValueError):
    """A value that is not plain data, or text that is not a packed value."""


def dumps(value: Any) -> bytes:
    """Return the packed value as JSON bytes."""
    return json.dumps(pack(value), separators=(",", ":")).encode("ascii")


def loads(text: bytes) -> Any:
    """Return the value of packed JSON bytes; PlainError for anything else."""
    try:
        return unpack(json.loads(text))
    except RecursionError:
        raise PlainError("nested too deeply") from None
    except ValueError as error:  # of json, of int("9" * 5000), and PlainError itself
        raise PlainError(str(error)) from None


def pack(value: Any) -> Any:
    """Return `value` as JSON-able structure; PlainError where it is not plain data."""
    return _pack(value, 0, [MAX_NODES])


def hard_keys(packed: Any) -> int:
    """Return how many keys and set elements have a hash for which collisions can be made: tuples, huge integers, ...

    Thousands of them with one hash make building a set take minutes, in whichever process builds it. Strings have a
    secret hash, and integers below 2^61 are their own.
    """
    count, left = 0, [packed]
    while left:
        item = left.pop()
        if type(item) is list:
            left += item
        elif type(item) is dict:
            for name, content in item.items():
                left.append(content)
                if name in HASHED and type(content) is list:
                    keys = [v[0] if type(v) is list and v and name == "dict" else v for v in content]
                    count += sum(type(k) in (dict, list) or (type(k) is int and abs(k) >= 1 << 60) for k in keys)
    return count


def unpack_hostile(packed: Any) -> Any:
    """Return the value of a packed structure from a candidate; PlainError also where building it could take hours."""
    if hard_keys(packed) > MAX_HARD_KEYS:
        raise PlainError(f"more than {MAX_HARD_KEYS:,} keys that are neither strings nor small numbers")
    return unpack(packed)


def _pack(value: Any, depth: int, left: list[int]) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is str:
        left[0] -= len(value) // CHARACTERS_A_NODE
        if left[0] < 0:
            raise PlainError(TOO_MUCH)
        return value
    if kind is int:
        return value if -BIG < value < BIG else {"int": hex(value)}
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        raise PlainError("a value nested too deeply" if depth > MAX_DEPTH else TOO_MUCH)
    if kind is list:
        return [_pack(v, depth + 1, left) for v in value]
    if kind is tuple:
        return {"tuple": [_pack(v, depth + 1, left) for v in value]}
    if kind is dict:
        return {"dict": [[_pack(k, depth + 1, left), _pack(v, depth + 1, left)] for k, v in value.items()]}
    return _pack_rare(value, kind, depth, left)


def _pack_rare(value: Any, kind: type, depth: int, left: list[int]) -> Any:
    def items(values: Any) -> list[Any]:
        packed = []
        for v in values:  # one by one: a generator may have no end
            left[0] -= 1
            if left[0] < 0:
                raise PlainError(TOO_MUCH)
            packed.append(_pack(v, depth + 1, left))
        return packed

    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        inner = value.item()
        if type(inner).__module__ != "numpy":
            return _pack(inner, depth + 1, left)
    for builtin in (int, float, str):  # subclasses: the value as the builtin holds it, not as the class shows it
        if isinstance(value, builtin):
            return _pack(
                getattr(builtin, "__str__" if builtin is str else f"__{builtin.__name__}__")(value), depth, left
            )
    for name, builtins in _GROUPS.items():
        if isinstance(value, builtins):
            return {name: items(value)}
    if isinstance(value, dict):
        return {"dict": items(tuple(pair) for pair in dict.items(value))}
    if isinstance(value, (bytes, bytearray)):
        return {kind.__name__ if kind is bytearray else "bytes": bytes(value).hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is range:
        return {"range": [_pack(v, depth + 1, left) for v in (value.start, value.stop, value.step)]}
    if (kind.__module__, kind.__name__) in (("fractions", "Fraction"), ("decimal", "Decimal")):
        return {kind.__name__: str(value)}
    if isinstance(value, Iterator) or kind is type({}.values()):
        return {"iterator": items(value)}
    raise PlainError(f"a {kind.__name__} object")


_GROUPS: dict[str, tuple[type, ...]] = {
    "tuple": (tuple,),
    "list": (list,),
    "set": (set, type({}.keys()), type({}.items())),
    "frozenset": (frozenset,),
}


def _pairs(pairs: list[Any]) -> dict[Any, Any]:
    return {unpack(k): unpack(v) for k, v in map(_pair, pairs)}


def _pair(pair: Any) -> list[Any]:
    if isinstance(pair, dict) and list(pair) == ["tuple"]:  # as a subclass of dict is packed
        pair = pair["tuple"]
    if not isinstance(pair, list) or len(pair) != 2:
        raise PlainError("a dict whose items are not pairs")
    return pair


def _fraction(text: str) -> Any:
    from fractions import Fraction  # slow to import, and rare

    return Fraction(*(int(part, 10) for part in text.split("/", 1)))


def _decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


_BUILD: dict[str, tuple[type, Any]] = {
    "int": (str, lambda text: int(text, 16)),
    "tuple": (list, lambda values: tuple(map(unpack, values))),
    "list": (list, lambda values: list(map(unpack, values))),
    "set": (list, lambda values: set(map(unpack, values))),
    "frozenset": (list, lambda values: frozenset(map(unpack, values))),
    "dict": (list, _pairs),
    "bytes": (str, bytes.fromhex),
    "bytearray": (str, bytearray.fromhex),
    "complex": (list, lambda parts: complex(float(parts[0]), float(parts[1]))),
    "range": (list, lambda parts: range(*(int(unpack(p)) for p in parts[:3]))),
    "Fraction": (str, lambda text: _fraction(text)),
    "Decimal": (str, lambda text: _decimal(text)),
    "iterator": (list, lambda values: iter(list(map(unpack, values)))),
}


def unpack(packed: Any) -> Any:
    """Return the value of a packed structure; PlainError where it is malformed."""
    kind = type(packed)
    if kind is list:
        return [unpack(p) for p in packed]
    if kind is not dict:
        return packed
    if len(packed) != 1:
        raise PlainError("an object with other than one key")
    ((name, content),) = packed.items()
    if name not in _BUILD or not isinstance(content, _BUILD[name][0]):
        raise PlainError(f"no plain type {str(name)[:40]!r} of that content")
    try:
        return _BUILD[name][1](content)
    except PlainError:
        raise
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:  # unhashable keys, 1/0, Decimal("x"), ...
        raise PlainError(f"a malformed {name}: {error}") from None
