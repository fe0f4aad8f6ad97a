"""From a prompt to tokens: the same for every generator that runs a model in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ranktuner.errors import InputError
from ranktuner.evals.samples import Answer, Prompt, Request


def form_of(tokenizer: Any) -> Literal["chat", "plain"]:
    """Return which prompts the model takes: messages where its tokenizer has a chat template, else plain text."""
    return "chat" if getattr(tokenizer, "chat_template", None) else "plain"


def prompt_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the prompt's tokens: messages through the chat template, text with the tokenizer's own start."""
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    if form_of(tokenizer) != "chat":
        raise InputError(
            "this model's tokenizer has no chat template, so messages cannot be put to it: use plain prompts "
            "(--prompt plain), or save the model with the template it was trained with"
        )
    messages = [dict(message) for message in prompt]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    # The template writes the special tokens itself: adding the tokenizer's would double the first one.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def no_room(requests: Sequence[Request], tokens: int, context: int | None) -> Iterator[Answer]:
    """Yield the answers to requests whose prompt leaves no room in the context: counted, not dropped."""
    note = f"the prompt has {tokens} tokens, the model's context holds {context}: no room to answer"
    return (Answer(request, "", "error", 0, note) for request in requests)


def need_folder(model: str) -> None:
    """Refuse a path that does not exist, before the hub is asked for it."""
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_like_path and not Path(model).expanduser().is_dir():
        raise InputError(f"--model {model}: no such folder; expected one with config.json, weights and tokenizer")
