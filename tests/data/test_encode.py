"""What is learnt, token by token: only what the model would write itself, under every kind of template."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from ranktuner.data.encode import Encoder, Example
from ranktuner.data.shapes import Row
from ranktuner.errors import DataError, InputError

CONVERSATION = Row(
    "x:1",
    (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2+3?"},
        {"role": "assistant", "content": "The answer is 5."},
        {"role": "user", "content": "And altogether?"},
        {"role": "assistant", "content": "72 é漢 clips"},
    ),
)
SINGLE = Row("x:1", ({"role": "user", "content": "What is 2+3?"}, {"role": "assistant", "content": "It is 5."}))
# Old reasoning is dropped from history, so a beginning rendered alone is no beginning of the whole.
FORGETS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}"
    "{% elif m.role == 'assistant' and '</think>' not in m.content and loop.last %}{{ '<think></think>' + m.content }}"
    "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_END_TOKEN = (
    "{% for m in messages %}{{ '### ' + m.role + ':\n' + m.content + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant:\n' }}{% endif %}"
)


def encode(row: Row, tokenizer: object = None, **options: object) -> tuple[object, Example]:
    tokenizer = tokenizer or tiny.tokenizer()
    (example,) = Encoder(tokenizer, **options).encode([row])
    return tokenizer, example


def learnt_text(tokenizer: object, example: Example) -> str:
    return tokenizer.decode(example.input_ids[example.learnt])


def test_only_the_assistant_turns_and_their_end_are_learnt() -> None:
    tokenizer, example = encode(CONVERSATION)
    assert learnt_text(tokenizer, example) == "The answer is 5.<|im_end|>72 é漢 clips<|im_end|>"
    assert tokenizer.decode(example.input_ids).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user")
    assert (example.labels == np.where(example.learnt, example.input_ids, -100)).all()
    assert not example.truncated


def test_a_prompt_is_the_beginning_of_its_training_text() -> None:
    for tokenizer in (tiny.tokenizer(), tiny.tokenizer(chat=False)):
        encoder = Encoder(tokenizer)
        (example,) = encoder.encode([SINGLE])
        prompt = tokenizer(encoder.prompt(SINGLE.messages[:1]), add_special_tokens=False).input_ids
        first = int(np.argmax(example.learnt))
        assert list(example.input_ids[:first]) == prompt


def test_templates_that_rewrite_history_still_mark_every_turn() -> None:
    row = Row(
        "x:1",
        (
            {"role": "user", "content": "Q1"},
            {"role": "assistant", "content": "<think>long</think>first"},
            {"role": "user", "content": "Q2"},
            {"role": "assistant", "content": "second"},
        ),
    )
    tokenizer, example = encode(row, tiny.tokenizer(template=FORGETS))
    assert learnt_text(tokenizer, example) == "first<|im_end|><think></think>second<|im_end|>"


def test_templates_without_an_end_token_learn_the_text_alone() -> None:
    tokenizer, example = encode(CONVERSATION, tiny.tokenizer(template=NO_END_TOKEN))
    assert learnt_text(tokenizer, example) == "The answer is 5.72 é漢 clips"


def test_tool_turns_are_context_and_tool_calls_are_learnt() -> None:
    template = (
        "{% if tools %}{{ 'TOOLS ' + tools[0].name + '\n' }}{% endif %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
        "{% for call in m.tool_calls or [] %}{{ 'CALL ' + call.name }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    row = Row(
        "x:1",
        (
            {"role": "user", "content": "sum"},
            {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]},
            {"role": "tool", "content": "5"},
            {"role": "assistant", "content": "It is 5."},
        ),
        tools=({"name": "add"},),
    )
    tokenizer, example = encode(row, tiny.tokenizer(template=template))
    assert learnt_text(tokenizer, example) == "CALL add<|im_end|>It is 5.<|im_end|>"
    assert tokenizer.decode(example.input_ids).startswith("TOOLS add\n")


def test_base_models_get_the_plain_template_and_learn_when_to_stop() -> None:
    tokenizer, example = encode(SINGLE, tiny.tokenizer(chat=False))
    assert tokenizer.decode(example.input_ids) == "Question: What is 2+3?\n\nAnswer: It is 5.<|end|>"
    assert learnt_text(tokenizer, example) == " It is 5.<|end|>"


def test_conversations_without_a_chat_template_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"x:1: a conversation of 5 messages.*data\.template=plain"):
        encode(CONVERSATION, tiny.tokenizer(chat=False))
    tokenizer, example = encode(CONVERSATION, tiny.tokenizer(chat=False), template="plain")
    assert learnt_text(tokenizer, example) == " The answer is 5.<|end|> 72 é漢 clips<|end|>"
    with pytest.raises(InputError, match="no chat template; use template=plain"):
        Encoder(tiny.tokenizer(chat=False), template="chat")
    with pytest.raises(InputError, match="template='chatml': expected one of auto, chat, plain"):
        Encoder(tiny.tokenizer(), template="chatml")


def test_truncation_is_marked_and_may_leave_nothing() -> None:
    _, whole = encode(CONVERSATION)
    first = int(np.argmax(whole.learnt))
    _, cut = encode(CONVERSATION, max_length=first + 2)
    assert cut.truncated
    assert (len(cut), cut.supervised) == (first + 2, 2)
    _, nothing = encode(CONVERSATION, max_length=first)
    assert nothing.truncated
    assert nothing.supervised == 0


def test_weights_of_rows_turns_and_tokens() -> None:
    turns = [dict(m) for m in CONVERSATION.messages]
    turns[2]["weight"], turns[4]["weight"] = 0, 2
    tokenizer, example = encode(Row("x:1", tuple(turns), weight=0.5))
    assert learnt_text(tokenizer, example) == "72 é漢 clips<|im_end|>"
    assert set(example.weights[example.learnt]) == {1.0}  # 2 of the turn times 0.5 of the row
    _, plain = encode(CONVERSATION)
    assert plain.weights is None
    ids = Row("x:2", input_ids=(5, 6, 7), labels=(-100, 6, 7), token_weights=(1.0, 0.0, 3.0))
    _, tokens = encode(ids)
    assert list(tokens.learnt) == [False, False, True]
    assert list(tokens.weights) == [1.0, 0.0, 3.0]


def test_the_suffix_follows_the_last_question() -> None:
    tokenizer, example = encode(SINGLE, suffix="Think.")
    assert "user\nWhat is 2+3?\nThink.<|im_end|>" in tokenizer.decode(example.input_ids)


def test_a_template_that_raises_names_the_row() -> None:
    refusing = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(DataError, match="x:1: the chat template refuses this conversation: roles must alternate"):
        encode(SINGLE, tiny.tokenizer(template=refusing))
    hiding = "{% for m in messages %}{{ m.role }}{% endfor %}"
    with pytest.raises(DataError, match="does not show assistant turn"):
        encode(SINGLE, tiny.tokenizer(template=hiding))


def test_tokens_of_another_tokenizer_are_refused() -> None:
    with pytest.raises(DataError, match=r"x:2: token 99999 is beyond the tokenizer's \d+"):
        encode(Row("x:2", input_ids=(5, 99999), labels=(5, 99999)))
