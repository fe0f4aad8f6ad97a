"""Hard rows of logits, drawn: for the tests that compare the package with the oracle.

Families are drawn from a seed (any vocabulary size); hypothesis draws short rows and shrinks what fails.
"""

from __future__ import annotations

import math
import random

import oracle
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ranktuner.signals import Signals

Row = tuple[list[float], int]
"""Logits and a label."""

FAMILIES = ("normal", "heavy-tail", "peaked", "near-one-hot", "uniform", "ties", "two-values", "huge", "masked")
LABELS = ("any", "top", "last")


def hard(examples: int) -> settings:
    """The settings of every hypothesis test here: the same draws in every run, so that a failure is a finding."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow)


def logits_of(family: str, vocab: int, draw: random.Random) -> list[float]:
    """One row of logits of a family."""
    normal = [draw.gauss(0, 2.5) for _ in range(vocab)]
    if family == "normal":
        return normal
    if family == "heavy-tail":  # Zipf: the expected rank is large and rests on many tokens
        row = [-1.1 * math.log(v + 1) + 0.1 * normal[v] for v in range(vocab)]
        draw.shuffle(row)
        return row
    if family == "peaked":
        normal[draw.randrange(vocab)] += 14
        return normal
    if family == "near-one-hot":
        normal[draw.randrange(vocab)] += draw.choice([40.0, 300.0, 9_000.0])
        return normal
    if family == "uniform":
        return [draw.choice([0.0, -7.25, 31.0])] * vocab
    if family == "ties":
        return [round(z) / 2 for z in normal]
    if family == "two-values":
        return [draw.choice([0.0, -1.0]) for _ in range(vocab)]
    if family == "huge":
        return [draw.choice([1e4, -1e4, 1e4 * draw.uniform(-1, 1)]) for _ in range(vocab)]
    assert family == "masked"
    keep = draw.randrange(vocab)
    return [z if v == keep or draw.random() < 0.5 else -math.inf for v, z in enumerate(normal)]


def label_of(kind: str, logits: list[float], draw: random.Random) -> int:
    """A label with a finite logit: any, the most likely or the least likely one."""
    finite = [v for v, z in enumerate(logits) if z > -math.inf]
    if kind == "any":
        return draw.choice(finite)
    return (max if kind == "top" else min)(finite, key=lambda v: logits[v])


def rows(vocab: int, seed: int, families: tuple[str, ...] = FAMILIES, count: int = 1) -> list[Row]:
    """`count` rows of each family; the labels take turns in being any, the top and the last."""
    draw = random.Random(seed)
    found: list[Row] = []
    for family in families:
        for _ in range(count):
            logits = logits_of(family, vocab, draw)
            found.append((logits, label_of(LABELS[len(found) % 3], logits, draw)))
    return found


@st.composite
def short_rows(draw: st.DrawFn, finite: bool = False) -> Row:
    """A row of 2 to 24 logits with every nastiness hypothesis can think of, and a label with a finite logit."""
    value = st.one_of(
        st.floats(-30, 30),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e4, -1e4, 88.8, -745.2]),
        st.floats(-1e4, 1e4, width=16),
    )
    entry = value if finite else st.one_of(value, value, value, st.just(-math.inf))
    logits = draw(st.lists(entry, min_size=2, max_size=24))
    label = draw(st.integers(0, len(logits) - 1))
    if logits[label] == -math.inf:
        logits[label] = draw(value)
    return logits, label


def tensors(batch: list[Row], dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of one vocabulary as logits_NV and target_N."""
    return torch.tensor([logits for logits, _ in batch], dtype=torch.float64).to(dtype), torch.tensor(
        [y for _, y in batch]
    )


def judged(logits_NV: torch.Tensor, target_N: torch.Tensor) -> list[oracle.Token]:
    """What the oracle says of a tensor: of its rounded values, whatever its dtype."""
    return [oracle.token(row, y) for row, y in zip(logits_NV.double().tolist(), target_N.tolist(), strict=True)]


def signals_of(
    tokens: list[oracle.Token],
    seq: list[int] | None = None,
    dtype: torch.dtype = torch.float64,
    topk: int | None = None,
    extras: bool = False,
) -> Signals:
    """The oracle's statistics as Signals, so that methods are judged apart from signals_from_logits."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64).to(dtype)

    return Signals(
        nll=column([t.nll for t in tokens]),
        rank=torch.tensor([t.rank for t in tokens]),
        is_top=torch.tensor([t.is_top for t in tokens]),
        entropy_bits=column([t.entropy_bits for t in tokens]),
        p_max=column([t.p_max for t in tokens]),
        seq=torch.tensor(seq if seq is not None else [0] * len(tokens)),
        vocab_size=tokens[0].vocab_size,
        topk_entropy=column([oracle.topk_entropy(list(t.logits), topk) for t in tokens]) if topk else None,
        sum_p2=column([oracle.sum_p2(list(t.logits)) for t in tokens]) if extras else None,
        mass_above=column([oracle.mass_above(list(t.logits), t.label) for t in tokens]) if extras else None,
    )


def close(got: float, want: float, tolerance: float) -> bool:
    """|got - want| within the tolerance, relative to the larger of 1 and |want|."""
    return abs(float(got) - float(want)) <= tolerance * max(1.0, abs(float(want)))
