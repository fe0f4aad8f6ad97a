"""Generators: what turns requests into answers. Each yields an answer as soon as it is finished, in any order.

| name           | module          | what                                                    |
| -------------- | --------------- | ------------------------------------------------------- |
| `transformers` | `hf`            | any transformers model, in this process (the default)   |
| `vllm`         | `vllm_engine`   | the same with vLLM (extra `vllm`)                       |
| `server`       | `server`        | any OpenAI-compatible server                            |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from ranktuner.evals.samples import Answer, Request, Settings


class Generator(Protocol):
    """What the run needs of a generator."""

    name: str
    """Of the kind: `transformers`, `vllm`, `server`."""
    fingerprint: str
    """Of the model: the same weights and tokenizer give the same, others do not."""
    form: Literal["chat", "plain"]
    """Which prompt this model takes, unless the user says otherwise: `plain` where there is no chat template."""

    def generate(self, requests: Sequence[Request], settings: Settings) -> Iterator[Answer]:
        """Yield one answer for each request, as they finish; what cannot be generated is an answer too (`error`)."""
        ...


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Return the text before the first stop string, and whether there was one."""
    found = [at for s in stop if s and (at := text.find(s)) >= 0]
    return (text[: min(found)], True) if found else (text, False)
