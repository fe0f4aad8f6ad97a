"""What the token view is given: whole characters, fixed colour steps, honest counts."""

from __future__ import annotations

import json

import demo
import pytest

from ranktuner.report.sources import Located
from ranktuner.report.tokens import SIGNALS, joined, token_view


@pytest.mark.parametrize(
    ("texts", "together"),
    [
        (["a", " b"], [["a"], [" b"]]),
        (["x", "", "", "世", "", "界"], [["x"], ["", "", "世"], ["", "界"]]),
        (["cafe", "\u0301", "s"], [["cafe", "\u0301"], ["s"]]),
        (["", "👨", "\u200d", "", "👩", "!"], [["", "👨", "\u200d", "", "👩"], ["!"]]),
        (["👍", "", "🏽"], [["👍", "", "🏽"]]),
        (["🇨", "🇭", "🇫", "🇷"], [["🇨", "🇭"], ["🇫", "🇷"]]),
        (["❤", "\ufe0f", " "], [["❤", "\ufe0f"], [" "]]),
        (["cut", "", ""], [["cut"], ["", ""]]),
        ([], []),
    ],
)
def test_tokens_of_one_character_are_drawn_together(texts: list[str], together: list[list[str]]) -> None:
    groups: list[list[str]] = []
    continued = set(joined(texts))
    for i, text in enumerate(texts):
        if i in continued:
            groups[-1].append(text)
        else:
            groups.append([text])
    assert groups == together


def located(repeat: int = 1) -> list[Located]:
    return [Located(demo.tokens(repeat), "tokens.json", None)]


def test_the_view_holds_every_token_with_its_numbers() -> None:
    finding = demo.tokens()
    view = token_view([Located(finding, "tokens.json", "sft")])
    assert view is not None
    for packed, row in zip(view["rows"], finding.numbers["rows"], strict=True):
        assert len(packed["t"]) == len(row["tokens"]["text"])
        assert packed["v"]["p"] == pytest.approx(row["tokens"]["p"], rel=1e-5)
        assert packed["v"]["w:dft"] == pytest.approx(row["tokens"]["weights"]["dft"], rel=1e-5)
        assert packed["u"] == row["under_learned"]
        assert packed["from"] == "sft"
    dft = [w for row in finding.numbers["rows"] for w in row["tokens"]["weights"]["dft"]]
    assert next(s["mean"] for s in view["signals"] if s["key"] == "w:dft") == pytest.approx(
        sum(dft) / len(dft), rel=1e-5
    )


def test_rows_over_the_budget_are_counted() -> None:
    whole, part = token_view(located(20)), token_view(located(20), budget=50_000)
    assert whole is not None
    assert part is not None
    assert whole["shown_rows"] == whole["rows_found"] == part["rows_found"] == 120
    assert 1 <= part["shown_rows"] < 120
    assert len(json.dumps(part["rows"], separators=(",", ":"))) < 60_000


def test_one_row_larger_than_the_budget_is_still_shown() -> None:
    view = token_view(located(), budget=1)
    assert view is not None
    assert view["shown_rows"] == 1


def test_colour_steps_fit_their_ramps() -> None:
    for signal in SIGNALS:
        assert list(signal.stops) == sorted(set(signal.stops))
        assert len(signal.stops) == {"q": 9, "d": 8}[signal.ramp], "ten colours of q, nine of d"


def test_no_findings_no_view() -> None:
    assert token_view([]) is None
