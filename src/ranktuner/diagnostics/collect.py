"""One pass of a model over encoded rows, into a token table. The only diagnostic that meets a model.

Memory beyond the model's own: hidden states of one batch, a chunk of logits at a time, and one row group of the table.
It does not grow with the number of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranktuner import bounds
from ranktuner.data.encode import Example
from ranktuner.diagnostics.pieces import Pieces
from ranktuner.diagnostics.table import TableWriter
from ranktuner.errors import DataError, UnsupportedError
from ranktuner.findings import provenance
from ranktuner.head import Attachment, score
from ranktuner.registry import method
from ranktuner.signals import Signals

BATCH = 16
"""Rows scored at once on devices other than the CPU."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Scored:
    """One example and what the model says about its supervised tokens."""

    example: Example
    position: Array
    """[N] place of each supervised token in the sequence."""
    signals: Signals
    """With `expected_rank`."""


def score_examples(
    model: Any, examples: Iterable[Example], needs: Iterable[str] = (), batch: int | None = None
) -> Iterator[Scored]:
    """Yield the signals, with the expected rank, of every example's supervised tokens, in order.

    Args:
        model: a causal LM of transformers, attached or not; scored in eval mode, left as it was.
        examples: encoded rows; one without a supervised token is passed over.
        needs: extra signals.
        batch: rows at once; default: 1 on a CPU, where padding would be the only effect, else `BATCH`.
    """
    wanted = ["expected_rank", *needs]
    device = model.get_input_embeddings().weight.device
    size = batch or (1 if device.type == "cpu" else BATCH)
    rows = (example for example in examples if example.supervised)
    with _attached(model):
        while some := list(islice(rows, size)):
            yield from _score(model, some, wanted, device)


def _attached(model: Any) -> AbstractContextManager[Any]:
    """Attach the head once for all rows: `score` alone would do it, and check it, for each batch again."""
    try:
        return Attachment(model, "sft", announce=False)
    except UnsupportedError:
        # Attached already, and `score` takes that; or a head that cannot be, and `score` says why.
        return nullcontext()


def _score(model: Any, batch: Sequence[Example], needs: Sequence[str], device: torch.device) -> Iterator[Scored]:
    width = max(len(example) for example in batch)
    ids, labels, mask = (torch.full((len(batch), width), fill) for fill in (0, -100, 0))
    for i, example in enumerate(batch):
        # Padding to the right: no real token sees it.
        ids[i, : len(example)] = torch.from_numpy(example.input_ids.astype(np.int64))
        labels[i, : len(example)] = torch.from_numpy(example.labels)
        mask[i, : len(example)] = 1
    inputs = {"input_ids": ids, "labels": labels, "attention_mask": mask}
    scored = score(model, {name: tensor.to(device) for name, tensor in inputs.items()}, needs=needs)
    for i, example in enumerate(batch):
        mine = (scored.row == i).nonzero()[:, 0]
        yield Scored(example, scored.position[mine].cpu().numpy(), scored.signals.map(partial(_take, index=mine)))


def _take(tensor: Tensor, index: Tensor) -> Tensor:
    return tensor[index]


def write_table(
    path: str | Path,
    model: Any,
    tokenizer: Any,
    examples: Iterable[Example],
    *,
    methods: Sequence[str] = (),
    meta: Mapping[str, Any] | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Make a token table: one pass of the model over the examples.

    Args:
        path: the parquet file to write.
        model: a causal LM of transformers.
        tokenizer: the one that encoded the examples.
        examples: encoded rows, in the order of the table.
        methods: specs of methods whose weights are stored. A method whose weights depend on other rows (talr) is worked
            out from the whole table when it is asked for (`summaries.weights_of`), never stored by row.
        meta: facts for the table's metadata: model, data, seed, planted text.
        tell: called after every row with the rows and tokens so far.

    Returns:
        The counts: rows, tokens, dropped, truncated.
    """
    made = {spec: method(spec) for spec in methods}
    stored = {spec: m for spec, m in made.items() if m.context is None and m.scope == "token"}
    needs = sorted({need for m in stored.values() for need in m.needs})
    pieces, digest = Pieces(tokenizer), hashlib.sha256()
    seen = {"rows": 0, "dropped": 0, "truncated": 0}

    def counted() -> Iterator[Example]:
        for example in examples:
            seen["truncated"] += example.truncated
            seen["dropped"] += not example.supervised
            yield example

    facts = {
        **provenance(),
        "vocab_size": model.config.get_text_config().vocab_size,
        "dtype": str(model.dtype).split(".")[-1],
        **(meta or {}),
    }
    with TableWriter(path, list(stored), facts) as writer:
        for scored in score_examples(model, counted(), needs):
            digest.update(scored.example.input_ids.tobytes() + scored.example.learnt.tobytes())
            columns = _columns(scored, pieces, seen["rows"])
            weights = {spec: m.weights(scored.signals).float().cpu().numpy() for spec, m in stored.items()}
            writer.add(scored.example.row_id, columns, weights)
            seen["rows"] += 1
            if tell:
                tell(seen["rows"], writer.tokens)
        if not seen["rows"]:
            raise DataError(
                f"{path}: none of the {seen['dropped']} rows has a supervised token: expected rows with an answer; "
                "give data with solutions, or a larger --max-length"
            )
        writer.finish(**seen, data_fingerprint=digest.hexdigest()[:16])
        return {**seen, "tokens": writer.tokens}


def _columns(scored: Scored, pieces: Pieces, row: int) -> dict[str, Array]:
    signals, count = scored.signals, len(scored.position)
    expected = signals.expected_rank
    assert expected is not None
    text = _cut(pieces, scored)
    end = np.cumsum([len(piece) for piece in text])
    rank_bound = bounds.rank_bound(signals.entropy_bits.double(), signals.p_max.double())
    k = bounds.elasticity(bounds.xi(signals.rank, rank_bound))
    indicator = bounds.indicator(signals.rank, expected)
    tensors = {
        "nll": signals.nll, "rank": signals.rank, "is_top": signals.is_top, "entropy_bits": signals.entropy_bits,
        "p_max": signals.p_max, "expected_rank": expected, "s": rank_bound, "k": k, "indicator": indicator,
    }  # fmt: skip
    return {
        "row": np.full(count, row),
        "position": scored.position,
        "token_id": scored.example.input_ids[scored.position],
        "text": np.array(text, dtype=object),
        "start": end - [len(piece) for piece in text],
        "end": end,
        **{name: tensor.cpu().numpy() for name, tensor in tensors.items()},
    }


def _cut(pieces: Pieces, scored: Scored) -> list[str]:
    """Pieces of the row's text; each stretch of neighbouring tokens (each turn) is decoded by itself."""
    ids = scored.example.input_ids[scored.position]
    stretches = np.split(ids, np.flatnonzero(np.diff(scored.position) != 1) + 1)
    return [piece for stretch in stretches for piece in pieces(stretch.tolist())]
