"""How a Finding is written: small, readable in a diff, and the same when it is read back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tables

from ranktuner.diagnostics.gradients import gradients
from ranktuner.diagnostics.surface import surface
from ranktuner.diagnostics.tightness import tightness
from ranktuner.findings import Finding, json_text


def test_lists_of_plain_values_are_one_line() -> None:
    value = {"a": [1, 2.5, None, "x\n"], "grid": [[1, 2], [3, 4]], "none": {}, "few": [], "rows": [{"b": "ä"}]}
    text = json_text(value)
    assert text.splitlines() == [
        "{",
        ' "a": [1, 2.5, null, "x\\n"],',
        ' "grid": [',
        "  [1, 2],",
        "  [3, 4]",
        " ],",
        ' "none": {},',
        ' "few": [],',
        ' "rows": [',
        "  {",
        '   "b": "ä"',
        "  }",
        " ]",
        "}",
    ]
    assert json.loads(text) == value


def test_what_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"numbers": [1.0, math.nan]})


@pytest.mark.parametrize(
    ("kind", "lines", "size"), [("tightness", 350, 40_000), ("surface", 400, 110_000), ("gradients", 550, 110_000)]
)
def test_a_stored_finding_is_small(kind: str, lines: int, size: int) -> None:
    rng = np.random.default_rng(0)
    count = 5000
    bits = rng.uniform(0.0, 9.0, count)
    table = tables.table(
        [["x"] * count],
        p=rng.uniform(1e-5, 1, count),
        rank=rng.integers(1, 40_000, count),
        entropy_bits=bits,
        expected_rank=2**bits,
        weights={"eaft": bits / 9},
    )
    made: dict[str, Finding] = {
        "tightness": tightness({"set": table}),
        "surface": surface(),
        "gradients": gradients(table, ["sft", "dft", "eaft", "ranktuner", "ranktuner(prior=prob)"]),
    }
    text = made[kind].to_json()
    assert (len(text.splitlines()) < lines, len(text) < size) == (True, True), (len(text.splitlines()), len(text))
