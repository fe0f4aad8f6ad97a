"""Tokens -> pieces of text that join to the exact text, for every tokenizer and every script.

A byte-level token can be half a character: decoded alone it gives U+FFFD. Here the token that completes a character
carries it whole, and the tokens before it carry nothing; so the pieces always join to what the tokenizer decodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BROKEN = "\ufffd"


class Pieces:
    """Cuts token sequences into pieces of text; remembers the text of every token id it has met."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._alone: dict[int, str] = {}

    def __call__(self, ids: Sequence[int]) -> list[str]:
        """Return one piece for each token; `"".join` of them is the decoded text."""
        whole = self._decode(ids)
        alone = [self._text_of(i) for i in ids]
        # True of nearly every row: no token depends on its neighbours. Else (half characters, or a tokenizer that
        # puts spaces by context) read token by token.
        return alone if "".join(alone) == whole else self._by_growth(ids, whole)

    def _by_growth(self, ids: Sequence[int], whole: str) -> list[str]:
        """Let the text grow token by token, decoding only from the last border between characters."""
        pieces: list[str] = []
        start, read, done = 0, 0, 0
        for end in range(1, len(ids) + 1):
            before = self._decode(ids[start:read])
            after = self._decode(ids[start:end])
            grown = after[len(before) :]
            # An unfinished character decodes to U+FFFD, as does a real one: it then waits for the next token. What
            # grew must also be what the whole text has there; else it waits too, and the end sets it right.
            if grown.endswith(BROKEN) or not after.startswith(before) or not whole.startswith(grown, done):
                pieces.append("")
                continue
            pieces.append(grown)
            done += len(grown)
            start, read = read, end
        if pieces and done < len(whole):
            pieces[-1] += whole[done:]
        return pieces

    def _text_of(self, token: int) -> str:
        if token not in self._alone:
            self._alone[token] = self._decode([token])
        return self._alone[token]

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
