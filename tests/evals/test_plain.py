"""Plain data over a pipe: what goes through comes back as builtins, and hostile bytes are answered with one error."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, UserList, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.evals.inside import plain
from ranktuner.evals.inside.plain import PlainError, dumps, hard_keys, loads, pack

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.fractions() | st.decimals(allow_nan=False)
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([1, -2, 3]))
)  # fmt: skip
KEYS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=3)
VALUES = st.recursive(
    SCALARS | st.sets(KEYS, max_size=3) | st.frozensets(KEYS, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


def same_types(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same_types, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same_types, a.values(), b.values()))
    return True


@given(VALUES)
def test_a_plain_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    back = loads(dumps(value))
    assert back == value
    assert same_types(back, value)


def test_numbers_at_the_edges() -> None:
    for value in (2**62, -(2**62), 10**5000, -(10**9000), 0.1, -0.0, math.inf, -math.inf, 5e-324):
        back = loads(dumps(value))
        assert type(back) is type(value)
        assert back == value
    assert math.copysign(1, loads(dumps(-0.0))) == -1
    assert math.isnan(loads(dumps(math.nan)))
    assert loads(dumps("\ud800\x00é")) == "\ud800\x00é"


class Colour(IntEnum):
    RED = 3


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict([(1, 2)]), {1: 2}),
        (Point(1, 2), (1, 2)),
        (Colour.RED, 3),
        (np.float64(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        ({1: 2}.keys(), {1}),
        ({1: 2}.items(), {(1, 2)}),
        (bytearray(b"ab"), bytearray(b"ab")),
    ],
)
def test_subclasses_and_views_become_the_builtin_that_they_equal(value: Any, expected: Any) -> None:
    back = loads(dumps(value))
    assert type(back) is type(expected)
    assert back == expected == value


def test_a_class_cannot_bring_its_own_equality() -> None:
    class Always(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def __int__(self) -> int:
            return 42

    back = loads(dumps(Always(5)))
    assert type(back) is int
    assert back == 5


def test_iterators_are_run_out_and_stay_iterators() -> None:
    for value in (iter([1, 2]), (n for n in (1, 2)), map(int, "12"), {0: 1, 5: 2}.values()):
        back = loads(dumps(value))
        assert back != [1, 2]
        assert list(back) == [1, 2]


class Thing:
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Thing(), "a Thing object"),
        (len, "a builtin_function_or_method object"),
        (np.zeros(3), "a ndarray object"),
        (UserList([1]), "a UserList object"),
        (Thing, "a type object"),
        ([[]] * 3_000_000, "more than 2,000,000 values"),
        ("x" * 40_000_000, "32,000,000 characters"),
    ],
)
def test_what_is_not_plain_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(PlainError, match=message):
        pack(value)


def test_depth_has_a_limit_on_both_sides() -> None:
    deep: list[Any] = []
    for _ in range(101):
        deep = [deep]
    with pytest.raises(PlainError, match="nested too deeply"):
        pack(deep)
    with pytest.raises(PlainError, match="nested too deeply"):
        loads(b"[" * 100_000 + b"]" * 100_000)


def test_keys_that_can_be_made_to_collide_are_counted() -> None:
    """Multiples of 2^61 - 1 all have the hash 0: a set of a few ten thousand would take minutes to build."""
    modulus = 2**61 - 1
    assert len({hash(n * modulus) for n in range(1, 100)}) == 1
    for value, count in (
        ({n * modulus for n in range(1, 100)}, 99),
        ({n: n * modulus for n in range(100)}, 0),
        ({(n, n): [] for n in range(7)}, 7),
        ([{"a": {Fraction(n, 3) for n in (1, 2)}}, frozenset([1j])], 3),
        ({str(n) for n in range(100)} | set(range(100)) | {0.5, None}, 0),
    ):
        assert hard_keys(pack(value)) == count
    assert hard_keys({"set": [n * modulus for n in range(1, 4)]}) == 3  # untagged, as only a hostile process sends it
    assert hard_keys({"set": 5, "dict": [[]]}) == 1


HOSTILE = [
    b"", b"{", b"\xff\xfe", b"[1", b"9" * 5000, b"{}", b'{"int": 5}', b'{"int": "0xzz"}', b'{"int": "1_0", "list": []}',
    b'{"set": [[1]]}', b'{"set": 5}', b'{"dict": [[1]]}', b'{"dict": [5]}', b'{"dict": [[[1], 2]]}', b'{"nothing": []}',
    b'{"complex": [1]}', b'{"complex": ["x", 1]}', b'{"range": [1, 2, 0]}', b'{"range": []}', b'{"Fraction": "1/0"}',
    b'{"Fraction": "x"}', b'{"Decimal": "x"}', b'{"bytes": "zz"}', b'{"tuple": null}', b'{"__class__": ["os"]}',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_bytes_are_one_kind_of_error(text: bytes) -> None:
    with pytest.raises(PlainError):
        loads(text)


NAMES = st.sampled_from(["int", "tuple", "set", "dict", "range", "complex", "Fraction", "Decimal", "iterator", "x"])


@given(st.recursive(st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(NAMES, v)))
def test_any_json_is_a_value_or_that_error(structure: Any) -> None:
    try:
        loads(json.dumps(structure).encode())
    except PlainError:
        return


def test_fractions_and_decimals_keep_their_type() -> None:
    assert loads(dumps([Fraction(1, 3), Decimal("1.10")])) == [Fraction(1, 3), Decimal("1.10")]


@pytest.mark.parametrize("keys", [[{"int": hex(n << 61)} for n in range(5001)], [{"tuple": [n]} for n in range(5001)]])
def test_thousands_of_keys_whose_hashes_can_be_made_to_collide_are_not_built(keys: list[object]) -> None:
    for packed in ({"set": keys}, {"dict": [[key, 0] for key in keys]}, [{"frozenset": keys}]):
        with pytest.raises(plain.PlainError, match="more than 5,000 keys that are neither strings nor small numbers"):
            plain.unpack_hostile(packed)
        assert plain.hard_keys(packed) == 5001
    assert len(plain.unpack_hostile({"set": keys[:100]})) == 100
    assert len(plain.unpack_hostile({"set": list(range(20_000))})) == 20_000
