"""Rows -> examples: token ids and which of them are learnt.

The template renders the conversation once; rendering its beginnings again says, to the character, where each
assistant turn starts and ends, for any template and without `{% generation %}` marks. What is learnt is what the
model would write itself: the turn's text and the token that ends it, not the line break after that token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktuner.data.shapes import Message, Row, with_suffix
from ranktuner.errors import DataError, InputError

PLAIN = (
    "{%- for m in messages -%}"
    "{%- if m.role == 'user' -%}{{ 'Question: ' + m.content + '\n\n' }}"
    "{%- elif m.role == 'assistant' -%}{{ 'Answer: ' + m.content + eos_token + ('' if loop.last else '\n\n') }}"
    "{%- else -%}{{ m.content + '\n\n' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Answer:' }}{%- endif -%}"
)
"""The template for base models. The prompt ends in "Answer:" without a space: the space belongs to the next token."""
TEMPLATES = ("auto", "chat", "plain")
MATH_SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."
"""The prompt suffix of the mathematics protocol."""
_SENTINEL = "\u2042 here the turn would stand \u2042"


@dataclass(frozen=True, slots=True)
class Example:
    """One encoded sequence."""

    row_id: str
    input_ids: NDArray[np.int32]
    learnt: NDArray[np.bool_]
    """True where the token is learnt; never at the first token, which nothing predicts."""
    weights: NDArray[np.float32] | None
    """One weight a token, or None where all are 1."""
    truncated: bool

    @property
    def labels(self) -> NDArray[np.int64]:
        """The tokens where they are learnt, -100 elsewhere; at their own position, not shifted."""
        return np.where(self.learnt, self.input_ids, -100).astype(np.int64)

    @property
    def supervised(self) -> int:
        """How many tokens are learnt."""
        return int(self.learnt.sum())

    def __len__(self) -> int:
        return len(self.input_ids)


class Encoder:
    """Encodes rows with one tokenizer and template; the same row always gives the same example.

    Args:
        tokenizer: a fast tokenizer of transformers.
        max_length: longer sequences lose their end (counted by `Example.truncated`); None keeps everything.
        template: `chat` (the tokenizer's own), `plain`, or `auto`: the tokenizer's own where it has one; else plain
            for prompts with one answer, and an error for conversations, whose format a base model does not know.
        suffix: put on a line of its own after the last user message; `math` stands for `MATH_SUFFIX`.
    """

    def __init__(
        self, tokenizer: Any, max_length: int | None = 2048, template: str = "auto", suffix: str | None = None
    ) -> None:
        if template not in TEMPLATES:
            raise InputError(f"template={template!r}: expected one of {', '.join(TEMPLATES)}")
        if not getattr(tokenizer, "is_fast", False):
            raise InputError(f"{type(tokenizer).__name__} gives no character offsets; use the model's fast tokenizer")
        has_chat = tokenizer.chat_template is not None
        if template == "chat" and not has_chat:
            raise InputError("template=chat, but the tokenizer has no chat template; use template=plain")
        self.tokenizer, self.max_length = tokenizer, max_length
        self.suffix = MATH_SUFFIX if suffix == "math" else suffix
        self._auto = template == "auto" and not has_chat
        self.template = "plain" if template == "plain" or self._auto else "chat"
        if self.template == "plain" and tokenizer.eos_token is None:
            raise InputError("the plain template ends an answer with the eos_token, and the tokenizer has none; set it")

    def encode(self, rows: Iterable[Row], chunk: int = 256) -> Iterator[Example]:
        """Yield the example of every row, in order; some may have no supervised token left (`Example.supervised`)."""
        rows = iter(rows)
        while batch := list(islice(rows, chunk)):
            yield from self._encode_chunk(batch)

    def _encode_chunk(self, rows: Sequence[Row]) -> Iterator[Example]:
        texts = [row for row in rows if not row.input_ids]
        spans = [self.render(row) for row in texts]
        # Rendered text already holds every special token the template wants, so the tokenizer adds none.
        encoded = (
            self.tokenizer([text for text, _ in spans], add_special_tokens=False, return_offsets_mapping=True)
            if texts
            else {"input_ids": [], "offset_mapping": []}
        )
        found = iter(zip(encoded["input_ids"], encoded["offset_mapping"], spans, strict=True))
        for row in rows:
            if row.input_ids:
                yield self._from_tokens(row)
            else:
                ids, offsets, (_, turns) = next(found)
                yield self._example(row, np.asarray(ids, np.int32), *_mark(np.asarray(offsets).reshape(-1, 2), turns))

    def render(self, row: Row) -> tuple[str, list[tuple[int, int, float]]]:
        """Return the conversation as text and, for each learnt turn, its first and last character and its weight."""
        if self._auto and len([m for m in row.messages if m["role"] in ("user", "assistant")]) > 2:
            raise DataError(
                f"{row.id}: a conversation of {len(row.messages)} messages, but the model's tokenizer has no chat "
                "template; use an instruction-tuned model's tokenizer, or --set data.template=plain"
            )
        row = with_suffix(row, self.suffix or "")
        messages = [{k: v for k, v in m.items() if k != "weight" and v is not None} for m in row.messages]
        for message in messages:
            message.setdefault("content", "")
        try:
            text = self._apply(messages, row)
            turns = [
                (*self._turn(row, messages, i, text), float(m.get("weight", 1.0) if m.get("weight") is not None else 1))
                for i, m in enumerate(row.messages)
                if m["role"] == "assistant"
            ]
        except DataError:
            raise
        except Exception as error:  # a template may raise anything; its own words say why
            raise DataError(f"{row.id}: the chat template refuses this conversation: {error}") from error
        prefix = self._bos() if self.template == "plain" else ""
        return prefix + text, [(a + len(prefix), b + len(prefix), w) for a, b, w in turns]

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return what the model sees before it answers: for generation with the same template as training."""
        text: str = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, chat_template=self._chat_template()
        )
        return (self._bos() if self.template == "plain" else "") + text

    def _chat_template(self) -> str | None:
        return PLAIN if self.template == "plain" else None

    def _bos(self) -> str:
        adds_bos = self.tokenizer("").input_ids[:1] == [self.tokenizer.bos_token_id]
        return self.tokenizer.bos_token if adds_bos and self.tokenizer.bos_token else ""

    def _apply(self, messages: list[dict[str, Any]], row: Row, prompt: bool = False) -> str:
        text: str = self.tokenizer.apply_chat_template(
            messages,
            tools=list(row.tools) or None,
            tokenize=False,
            add_generation_prompt=prompt,
            chat_template=self._chat_template(),
        )
        return text

    def _turn(self, row: Row, messages: list[dict[str, Any]], at: int, text: str) -> tuple[int, int]:
        """Return where the turn `messages[at]` starts and ends in `text`."""
        before = self._apply(messages[:at], row, prompt=True) if at else None
        through = self._apply(messages[: at + 1], row) if at + 1 < len(messages) else text
        start = len(before) if before is not None and text.startswith(before) else None
        end = len(through) if text.startswith(through) else None
        if start is None or end is None:
            # The template rewrites history (drops old reasoning, say): find the turn by what changes with it.
            first, last = self._by_change(row, messages, at, text)
            start = first if start is None else start
            end = self._through_end_token(text, last) if end is None else end
        content = messages[at]["content"]
        # Its last characters alone: the front may be reasoning that the template rightly drops.
        if isinstance(content, str) and content.strip()[-4:] not in text[start:end]:
            raise DataError(
                f"{row.id}: the template does not show assistant turn {at + 1} where it should stand; "
                "simplify the template, or bring the row as input_ids and labels"
            )
        return start, start + len(text[start:end].rstrip())

    def _by_change(self, row: Row, messages: list[dict[str, Any]], at: int, text: str) -> tuple[int, int]:
        other = self._apply([*messages[:at], {"role": "assistant", "content": _SENTINEL}, *messages[at + 1 :]], row)
        first = _common(text, other)
        last = len(text) - min(_common(text[::-1], other[::-1]), len(text) - first, len(other) - first)
        return first, last

    def _through_end_token(self, text: str, end: int) -> int:
        tokens = [t for t in self.tokenizer.all_special_tokens if t]
        ends = [i + len(t) for t in tokens if (i := text.find(t, end)) >= 0 and not text[end:i].strip()]
        return min(ends, default=end)

    def _from_tokens(self, row: Row) -> Example:
        labels = np.asarray(row.labels, np.int64)
        weights = np.asarray(row.token_weights, np.float32) if row.token_weights else None
        vocabulary = len(self.tokenizer)
        if (high := max(row.input_ids)) >= vocabulary:
            raise DataError(f"{row.id}: token {high} is beyond the tokenizer's {vocabulary}; was another one used?")
        return self._example(row, np.asarray(row.input_ids, np.int32), labels >= 0, weights)

    def _example(
        self, row: Row, ids: NDArray[np.int32], learnt: NDArray[np.bool_], weights: NDArray[np.float32] | None
    ) -> Example:
        truncated = self.max_length is not None and len(ids) > self.max_length
        stop = self.max_length if truncated else len(ids)
        learnt = learnt[:stop].copy()
        learnt[:1] = False
        if weights is None and row.weight != 1.0:
            weights = np.ones(len(ids), np.float32)
        if weights is not None:
            weights = weights[:stop] * np.float32(row.weight)
            learnt &= weights > 0
        return Example(row.id, ids[:stop], learnt, weights, truncated)


def _mark(
    offsets: NDArray[np.int64], turns: Sequence[tuple[int, int, float]]
) -> tuple[NDArray[np.bool_], NDArray[np.float32] | None]:
    """Mark the tokens whose last character lies inside a turn; weights only where a turn brings one."""
    learnt = np.zeros(len(offsets), np.bool_)
    weights = np.ones(len(offsets), np.float32)
    for first, end, weight in turns:
        # A token is the turn's when it ends inside it: one that begins with the prompt's last space still counts.
        inside = (offsets[:, 1] > first) & (offsets[:, 1] <= end) & (offsets[:, 1] > offsets[:, 0])
        learnt |= inside & (weight > 0)
        weights[inside] = weight
    return learnt, (weights if any(w not in (0.0, 1.0) for *_, w in turns) else None)


def _common(a: str, b: str) -> int:
    """Length of the common beginning of two texts."""
    low = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        low += 1
    return low
