"""What stands in for models and tasks at `--scale tiny`: a random model with a tokenizer, tasks of generated problems.

Everything is made here, without a download, and is the same on every machine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ranktuner.data.arithmetic import WordProblem, draw
from ranktuner.errors import missing_extra

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = 512
HIDDEN = 32
TASK = """\
# Generated problems in the place of {name}.
name = "{name}"
title = "{name}, generated"
data = "data.jsonl"
question = "question"
answer = "answer"
grader = "{grader}"
n = 8
expected = {count}

[decoding]
max_new_tokens = 160
"""


def write_tiny_model(folder: Path, seed: int) -> None:
    """Write a random model of two layers with a tokenizer of 512 tokens, as an ordinary model folder.

    Args:
        folder: made whole or not at all.
        seed: of the weights.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, Qwen2Config
    except ImportError as error:
        raise missing_extra("transformers", "train", "The tiny model") from error
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=3,
        pad_token_id=0,
        # Wide enough that predictions are not all alike: ranks and entropies then differ.
        initializer_range=0.2,
    )
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(part)
    _tokenizer().save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def byte_level(texts: Sequence[str], vocabulary: int) -> Any:
    """Return a byte-level tokenizer trained on texts, with the special tokens that `CHATML` takes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|pad|>", "<|end|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return core


@cache
def _tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=byte_level([f"{one.problem}\n{one.solution}" for one in draw("train", 200)], VOCABULARY),
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    made.chat_template = CHATML
    return made


def write_task(folder: Path, name: str, grader: str, count: int) -> None:
    """Write a task that stands in for a public one: arithmetic whose answers are of that task's kind.

    Args:
        folder: gets `task.toml` and `data.jsonl`.
        name: the public task's; it draws other problems than every other name.
        grader: math (a number in a box), choice (one of four numbers) or code (a function that returns the number).
        count: problems.
    """
    seed = int.from_bytes(name.encode()[:4], "big")
    problems = draw("test", count, seed=seed, steps=[2])
    rows = {"math": _math, "choice": _choice, "code": _code}[grader](problems)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "task.toml").write_text(TASK.format(name=name, grader=grader, count=count), encoding="utf-8")


def _math(problems: list[WordProblem]) -> Iterator[dict[str, Any]]:
    return ({"id": one.id, "question": one.problem, "answer": one.answer} for one in problems)


def _choice(problems: list[WordProblem]) -> Iterator[dict[str, Any]]:
    for i, one in enumerate(problems):
        right = int(one.answer)
        listed = [right + 1, right + 3, right + 10]
        listed.insert(i % 4, right)
        yield {"id": one.id, "question": one.problem, "choices": [str(n) for n in listed], "answer": one.answer}


def _code(problems: list[WordProblem]) -> Iterator[dict[str, Any]]:
    for one in problems:
        prompt = f'def result():\n    """{one.problem} Return the number."""\n'
        yield {
            "id": one.id,
            "question": prompt,
            "entry_point": "result",
            "inputs": [[]],
            "outputs": [int(one.answer)],
            "reference": f"    return {one.expression}\n",
        }
