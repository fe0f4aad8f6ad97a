"""How numbers are written and how text is made visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktuner.report.writing import interval, num, sentence, visible, written


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (0.123456, "auto", "0.123"),
        (0.9996, "auto", "1.00"),
        (99.97, "auto", "100"),
        (12345.6, "auto", "12,346"),
        (0.000123, "auto", "1.2e−4"),
        (-1.5e-9, "auto", "−1.5e−9"),
        (0, "auto", "0"),
        (0.0, "auto", "0"),
        (12345, "count", "12,345"),
        (0.5934, "percent", "59.3\u202f%"),
        (0.1, "whole-percent", "10\u202f%"),
        (2.0, "exact", "2"),
        (3, "exact", "3"),
        (None, "auto", "–"),
    ],
)
def test_written(value: float | None, style: str, text: str) -> None:
    assert written(value, style) == text


@given(st.floats(1e-9, 1e8))
def test_three_digits_are_a_rounding(value: float) -> None:
    assert float(written(value).replace(",", "").replace("−", "-")) == pytest.approx(
        value, rel=0.051 if value < 1e-3 else 0.00501
    )


def test_a_number_carries_its_exact_value() -> None:
    assert num(0.1 + 0.2, "percent") == '<data value="0.30000000000000004">30.0\u202f%</data>'
    assert interval(0.1, None) == ""


def test_a_sentence_escapes_what_it_is_given() -> None:
    assert sentence("{} <b>of</b> {}", "<script>", num(3, "count")) == (
        '&lt;script&gt; <b>of</b> <data value="3">3</data>'
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b[31m\x7f", "a␀b␛[31m␡"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("user\u202egnp.exe", "user⟨RLO⟩gnp.exe"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("zero\u200bwidth\ufeff", "zero⟨ZWSP⟩width⟨BOM⟩"),
        ("family 👨‍👩‍👧 ❤️ שלום مرحبا", "family 👨‍👩‍👧 ❤️ שלום مرحبا"),
        ("\x85\u2028", "⟨85⟩⟨LS⟩"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_visible_text_is_utf8_without_controls(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not [c for c in shown if ord(c) < 32 and c not in "\t\n"]
