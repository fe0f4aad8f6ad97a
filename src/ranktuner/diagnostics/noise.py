"""Noise: do a score's top tokens point at text that does not belong?

The paper's protocol. A share of the rows gets a foreign sentence in the middle of the answer. Over all supervised
tokens, the 10 % with the largest score are looked at: how much of the noise is among them (recall), how much of them is
noise (precision). Over rows, the mean score of the inserted span is compared with spans of the same lengths in the
middle of clean rows: how many of the corrupted rows are among the top 10 % (sequence hit).

For a score that is meant to find noise, high is good; for a weight, high means that training would dwell on the noise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktuner.diagnostics.summaries import TopShare, bootstrap, need, provenance_of, summary, weights_of
from ranktuner.diagnostics.table import TokenTable
from ranktuner.errors import DataError, InputError
from ranktuner.findings import Finding

Array = NDArray[Any]

CORRUPTION_RATIO = 0.1
TOP = 0.1
LEAST_ROWS = 20
LEAST_WORDS = 3

LENGTHS = (12, 18, 25)
DEPTHS = (5, 15)
"""Borders, in tokens, of the classes that recall is split into: of the inserted sentence's length, and of the place in
it. A model adapts to foreign text within a few tokens, so both move a score's recall more than most models do."""

SCORES = {"entropy": "entropy H", "probability": "-ln p", "inverse-indicator": "1/I"}
"""The paper's three scores: name -> label."""


def first_sentence(text: str) -> str | None:
    """Return the first sentence of a text, or None where it is no sentence of at least three words (a list, a number).

    It ends at a full stop, question or exclamation mark before white space, or at the end of the line.
    """
    found = re.match(r"\s*(.+?(?:[.!?](?=\s|$)|(?=\n)|$))", text)
    sentence = found.group(1).strip() if found else ""
    return sentence if len(sentence.split()) >= LEAST_WORDS else None


def insert_at_middle(text: str, sentence: str) -> tuple[str, int, int]:
    """Insert a sentence at the white space nearest to the middle of a text.

    Returns:
        The new text, and start and end of the inserted piece in it: one space and the sentence, before the text's own
        white space. A text without inner white space gets it at its end.
    """
    spaces = [m.start() for m in re.finditer(r"\s+", text) if m.start() > 0 and m.end() < len(text)]
    at = min(spaces, key=lambda i: abs(i - len(text) / 2), default=len(text))
    piece = " " + sentence
    return text[:at] + piece + text[at:], at, at + len(piece)


Piece = tuple[int, str]
"""Where planted text begins in its answer, and the text: JSON keeps it in a table's metadata as a list."""


@dataclass(frozen=True)
class Planted:
    """Texts of which some were corrupted."""

    texts: tuple[str, ...]
    pieces: Mapping[int, Piece]
    """Number of the text -> what was inserted into it."""


def plant(texts: Sequence[str], sentences: Sequence[str], seed: int, ratio: float = CORRUPTION_RATIO) -> Planted:
    """Corrupt a share of the texts, each with another sentence; the seed chooses texts and sentences.

    Args:
        texts: the answers.
        sentences: what may be inserted, see `first_sentence`.
        seed: of the choice.
        ratio: share of texts to corrupt, rounded to a whole number of at least one.
    """
    if not 0 < ratio < 1:
        raise InputError(f"corruption ratio {ratio}: expected a share between 0 and 1, such as {CORRUPTION_RATIO}")
    count = max(1, round(ratio * len(texts)))
    need(len(texts), 2, "rows to corrupt")
    need(len(sentences), count, "sentences to insert", "the noise data")
    rng = np.random.default_rng(seed)
    chosen = sorted(rng.choice(len(texts), count, replace=False).tolist())
    words = [sentences[i] for i in rng.choice(len(sentences), count, replace=False)]
    new, pieces = list(texts), {}
    for number, sentence in zip(chosen, words, strict=True):
        new[number], start, end = insert_at_middle(texts[number], sentence)
        pieces[number] = (start, new[number][start:end])
    return Planted(tuple(new), pieces)


def planted_tokens(table: TokenTable) -> Array:
    """Return which tokens ([N] bool) overlap planted text; `meta["planted"]` has row number -> Piece."""
    planted: dict[int, Piece] = {int(number): piece for number, piece in (table.meta.get("planted") or {}).items()}
    if not planted:
        raise DataError(
            "this token table has no planted noise (no 'planted' in its metadata): make it with "
            "ranktuner diagnose noise --model ... --data ... --noise ..."
        )
    mask = np.zeros(len(table), dtype=bool)
    for number, first, last in table.bounds_of_rows():
        found = _locate(table.row_text(first, last), *planted[number]) if number in planted else None
        if found:
            start, end = table.start[first:last], table.end[first:last]
            # A part of a character has no text of its own: it goes with the character it begins.
            mask[first:last] = (np.maximum(end, start + 1) > found[0]) & (start < found[1])
    return mask


def _locate(text: str, at: int, piece: str) -> tuple[int, int] | None:
    """Return start and end of planted text in a row's supervised text; None where the length limit cut it off."""
    # The template may put something before the answer, or strip it: the occurrence nearest to the place is the one.
    starts = [m.start() for m in re.finditer(f"(?={re.escape(piece)})", text)]
    start = min(starts, key=lambda i: abs(i - at), default=None)
    return None if start is None else (start, start + len(piece))


def control_spans(table: TokenTable, noise: Array, seed: int) -> list[tuple[int, int]]:
    """Return a span of tokens for each row: the planted one, or one of a planted one's length in its middle."""
    rng = np.random.default_rng(seed)
    rows = table.bounds_of_rows()
    lengths = [int(noise[a:b].sum()) for _, a, b in rows if noise[a:b].any()]
    spans = []
    for _, a, b in rows:
        if noise[a:b].any():
            inside = np.flatnonzero(noise[a:b]) + a
            spans.append((int(inside[0]), int(inside[-1]) + 1))
        else:
            length = min(int(rng.choice(lengths)), b - a)
            middle = a + (b - a - length) // 2
            spans.append((middle, middle + length))
    return spans


def scores_of(table: TokenTable, methods: Sequence[str]) -> dict[str, Array]:
    """Return the paper's three scores and the weight of every method, name -> [N]."""
    own = {
        "entropy": table.entropy_bits.astype(np.float64),
        "probability": table.nll.astype(np.float64),
        "inverse-indicator": 1.0 / table.indicator.astype(np.float64),
    }
    return own | {method: weights_of(table, method) for method in methods}


@dataclass(frozen=True)
class _Seed:
    """One seed's table with what every score is measured on."""

    number: int
    table: TokenTable
    noise: Array
    row_of: Array
    corrupted: Array
    spans: list[tuple[int, int]]
    length: Array
    """[N] tokens of the planted piece that a token belongs to; 0 outside."""
    depth: Array
    """[N] place of a token in its piece, from 1; 0 outside."""

    @staticmethod
    def of(table: TokenTable) -> _Seed:
        seed = int(table.meta.get("seed", 0))
        noise = planted_tokens(table)
        rows = table.bounds_of_rows()
        need(len(rows), LEAST_ROWS, "rows")
        need(int(noise.any()), 1, "rows in which the planted text survived", "the token table")
        row_of = np.repeat(np.arange(len(rows)), [b - a for _, a, b in rows])
        corrupted = np.array([bool(noise[a:b].any()) for _, a, b in rows])
        length, depth = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
        for _, a, b in rows:
            inside = np.flatnonzero(noise[a:b]) + a
            length[inside], depth[inside] = len(inside), np.arange(1, len(inside) + 1)
        return _Seed(seed, table, noise, row_of, corrupted, control_spans(table, noise, seed), length, depth)


def noise(tables: Sequence[TokenTable], methods: Sequence[str] = (), top: float = TOP) -> Finding:
    """Return the noise diagnostic over one token table with planted noise for each seed.

    Args:
        tables: see `planted_tokens`; `meta["seed"]` names the seed.
        methods: specs of the methods whose weights are judged beside the paper's three scores.
        top: the share that is looked at.
    """
    seeds = [_Seed.of(table) for table in tables]
    by_score = [scores_of(seed.table, methods) for seed in seeds]
    found = []
    for name in by_score[0]:
        kind = "score" if name in SCORES else "weight"
        measured = _measure(seeds, [scores[name] for scores in by_score], top)
        found.append({"name": name, "label": SCORES.get(name, name), "kind": kind, **measured})
    counts = [
        {
            "seed": s.number,
            "rows": len(s.corrupted),
            "corrupted": int(s.corrupted.sum()),
            "tokens": len(s.table),
            "noise_tokens": int(s.noise.sum()),
        }
        for s in seeds
    ]
    base = sum(c["noise_tokens"] for c in counts) / sum(c["tokens"] for c in counts)
    first = tables[0].meta
    return Finding(
        kind="noise",
        title="Which scores point at planted noise",
        n=sum(len(table) for table in tables),
        numbers={
            "scores": found,
            "by_seed": counts,
            "chance": {"token_recall": top, "token_precision": base, "sequence_hit": top},
        },
        protocol={
            "unit": "tokens",
            "corruption_ratio": first.get("corruption_ratio", CORRUPTION_RATIO),
            "top": top,
            "seeds": [s.number for s in seeds],
            "rows": len(seeds[0].corrupted),
            "insertion": "first sentence (three words or more) of an answer of the noise data, at the white space "
            "nearest to the middle",
            "control": "spans of the inserted ones' token lengths in the middle of the clean rows; a row's score "
            "is its span's mean",
            "interval": "95 %, bootstrap over rows within each seed",
            "source": first.get("data"),
            "noise_source": first.get("noise_source"),
        },
        provenance=provenance_of({f"seed {s.number}": s.table for s in seeds}),
    )


def _measure(seeds: Sequence[_Seed], scores: Sequence[Array], top: float) -> dict[str, Any]:
    tokens = [TopShare(score, seed.noise) for seed, score in zip(seeds, scores, strict=True)]
    means = [np.array([score[a:b].mean() for a, b in seed.spans]) for seed, score in zip(seeds, scores, strict=True)]
    rows = [TopShare(mean, seed.corrupted) for seed, mean in zip(seeds, means, strict=True)]
    plain = [t.hits(top) for t in tokens]
    by_row = [r.hits(top) for r in rows]

    def interval(which: str) -> tuple[float, float]:
        def statistic(times: list[Array]) -> float:
            found = []
            for seed, token, row, count in zip(seeds, tokens, rows, times, strict=True):
                hit, limit, all_ = row.hits(top, count) if which == "rows" else token.hits(top, count[seed.row_of])
                found.append(hit / (limit if which == "precision" else all_))
            return float(np.mean(found))

        return bootstrap([seed.corrupted for seed in seeds], statistic, seed=0)

    return {
        "token_recall": summary([hit / all_ for hit, _, all_ in plain], *interval("recall")),
        "token_precision": summary([hit / limit for hit, limit, _ in plain], *interval("precision")),
        "sequence_hit": summary([hit / all_ for hit, _, all_ in by_row], *interval("rows")),
        "sequence_hits": [hit for hit, _, _ in by_row],
        "recall_by_length": _split(seeds, scores, top, [seed.length for seed in seeds], LENGTHS),
        "recall_by_depth": _split(seeds, scores, top, [seed.depth for seed in seeds], DEPTHS),
    }


def _split(
    seeds: Sequence[_Seed], scores: Sequence[Array], top: float, of: Sequence[Array], borders: Sequence[int]
) -> list[dict[str, Any]]:
    """Token recall, all seeds together, of the planted tokens whose length or depth lies between two borders."""
    classes: list[dict[str, Any]] = []
    for low, high in zip((0, *borders), (*borders, None), strict=True):
        parts = [s.noise & (value > low) & (value <= (high or np.inf)) for s, value in zip(seeds, of, strict=True)]
        counts = [TopShare(score, part).hits(top) for score, part in zip(scores, parts, strict=True)]
        hits, planted = sum(c[0] for c in counts), sum(c[2] for c in counts)
        classes.append(
            {"up_to": high, "noise_tokens": int(planted), "token_recall": hits / planted if planted else None}
        )
    return classes
