"""The token view: what the page needs to colour a text by any signal of its tokens."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ranktuner.report.embed import short
from ranktuner.report.sources import Located
from ranktuner.report.writing import visible

BUDGET = 1_200_000
"""Bytes of the page that token rows may take; what is over it stays in the JSON, and the page says so."""

_ZWJ = "\u200d"
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


@dataclass(frozen=True)
class Signal:
    """A quantity that text can be coloured by: fixed steps, so that two reports can be compared by eye."""

    key: str
    label: str
    ramp: str
    """`q`: stronger colour for more attention; `d`: orange below the middle, blue above."""
    stops: Sequence[float]
    """Ascending borders between the colours."""
    reverse: bool = False
    """A small value gets the strong colour."""
    relative: bool = False
    """The colour shows the value divided by its mean over the page."""
    help: str = ""


SIGNALS = (
    Signal(
        "p",
        "p",
        "q",
        [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.9],
        reverse=True,
        help="Probability of the label. Strong colour: the model did not expect this token.",
    ),
    Signal(
        "entropy_bits",
        "H",
        "q",
        [0.1, 0.3, 0.6, 1, 1.5, 2, 3, 4.5, 6],
        help="Entropy of the prediction in bits. Strong colour: many continuations were possible here.",
    ),
    Signal(
        "rank",
        "R",
        "q",
        [2, 3, 5, 10, 20, 50, 100, 300, 1000],
        help="Rank of the label among all tokens. Strong colour: many tokens were preferred to it.",
    ),
    Signal(
        "expected_rank",
        "E[R]",
        "q",
        [1.1, 1.5, 2, 3, 5, 10, 30, 100, 1000],
        help="The rank that the model expects of its own next token. Strong colour: an open context.",
    ),
    Signal(
        "indicator",
        "I",
        "d",
        [0.6, 0.75, 0.9, 0.98, 1.02, 1.1, 1.3, 1.6],
        help="Rank against expected rank. Orange: worse than expected, something to learn. Blue: better than expected.",
    ),
)

WEIGHT_STOPS = [0.125, 0.25, 0.5, 0.8, 1.25, 2, 4, 8]


def weight_signal(method: str) -> Signal:
    """Return the signal for the weight that a method gives."""
    return Signal(
        f"w:{method}",
        method,
        "d",
        WEIGHT_STOPS,
        relative=True,
        help=f"Weight under {method}, in multiples of its mean on this page. Orange: played down. Blue: played up.",
    )


def joins(before: str, text: str) -> bool:
    """Whether a text continues the visible character that the text before it ends with.

    True before combining marks, variation selectors, skin tones and tags, on both sides of a zero-width joiner, and
    between the two halves of a flag.
    """
    if not before or not text:
        return False
    first = text[0]
    if first == _ZWJ or before[-1] == _ZWJ or unicodedata.category(first) in ("Mn", "Me", "Mc"):
        return True
    if 0x1F3FB <= ord(first) <= 0x1F3FF or 0xE0020 <= ord(first) <= 0xE007F:
        return True
    flags = len(before) - len(before.rstrip(_FLAG_LETTERS))
    return flags % 2 == 1 and first in _FLAG_LETTERS


def joined(texts: Sequence[str]) -> list[int]:
    """Return the indices of the tokens that are drawn together with the one before them.

    A token without text is the first part of a character that a later token completes: it belongs to that one.
    """
    found: list[int] = []
    before = ""
    start = 0  # of the parts that the next text completes
    for i, text in enumerate(texts):
        if not text and i + 1 < len(texts):
            continue
        first = start if joins(before, text) else start + 1
        found += range(first, i + 1)
        # The halves of a flag are counted within what is drawn together.
        before = before + text if joins(before, text) else text
        start = i + 1
    return found


def token_view(found: Sequence[Located], budget: int = BUDGET) -> dict[str, Any] | None:
    """Return the page's token data, or None where no Finding has tokens.

    Args:
        found: Findings of kind `tokens`.
        budget: bytes that the rows may take; at least one row is always there.

    Returns:
        `signals` (what to colour by), `rows` (texts in columns), and how many rows and tokens there are in all.
    """
    if not found:
        return None
    methods = list(dict.fromkeys(method for one in found for method in one.finding.numbers["methods"]))
    rows: list[dict[str, Any]] = []
    spent, total_rows, total_tokens = 0, 0, 0
    for one in found:
        label = one.run or (one.finding.title if len(found) > 1 else None)
        for row in one.finding.numbers["rows"]:
            total_rows += 1
            total_tokens += len(row["tokens"]["text"])
            packed = _pack(row, label)
            size = len(json.dumps(packed, ensure_ascii=False, separators=(",", ":")).encode())
            if rows and spent + size > budget:
                continue
            spent += size
            rows.append(packed)
    signals = [*SIGNALS, *map(weight_signal, methods)]
    return {
        "signals": [{**asdict(signal), "mean": _mean(rows, signal)} for signal in signals],
        "methods": methods,
        "rows": rows,
        "shown_rows": len(rows),
        "shown_tokens": sum(len(row["t"]) for row in rows),
        "rows_found": total_rows,
        "of_rows": sum(int(one.finding.numbers.get("of_rows") or len(one.finding.numbers["rows"])) for one in found),
        "tokens_found": total_tokens,
        "under_learned": sum(len(row["u"]) for row in rows),
    }


_COLUMNS = {
    "p": "p",
    "nll": "nll",
    "rank": "rank",
    "entropy_bits": "entropy_bits",
    "p_max": "p_max",
    "expected_rank": "expected_rank",
    "s": "s",
    "k": "k",
    "indicator": "indicator",
}


def _pack(row: Mapping[str, Any], label: str | None) -> dict[str, Any]:
    tokens = row["tokens"]
    columns = {key: [short(v) for v in tokens[name]] for key, name in _COLUMNS.items() if name in tokens}
    columns |= {f"w:{method}": [short(v) for v in values] for method, values in tokens["weights"].items()}
    return {
        "id": visible(str(row["id"])),
        "from": visible(label) if label else None,
        "prompt": visible(row["prompt"]) if row.get("prompt") else None,
        "t": [visible(text) for text in tokens["text"]],
        "start": tokens["start"],
        "j": joined(tokens["text"]),
        "u": row.get("under_learned", []),
        "v": columns,
    }


def _mean(rows: Sequence[Mapping[str, Any]], signal: Signal) -> float | None:
    if not signal.relative:
        return None
    values = [v for row in rows for v in row["v"].get(signal.key, []) if v is not None]
    return sum(values) / len(values) if values else None
