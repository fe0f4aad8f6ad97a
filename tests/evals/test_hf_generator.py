"""The embedded generator against a loop that keeps no cache, shares nothing and writes one sample at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tiny
import torch

from ranktuner.errors import InputError, RankTunerError, UnsupportedError
from ranktuner.evals.generators import kv_rows
from ranktuner.evals.generators.hf import TransformersGenerator
from ranktuner.evals.generators.kv_rows import fill_gaps
from ranktuner.evals.generators.noise import draw
from ranktuner.evals.samples import Answer, Request, Settings, requests_for

WORDS = [
    "how",
    "many",
    "clips",
    "did",
    "Natalia",
    "sell",
    "altogether",
    "in",
    "May",
    ",",
    "and",
    "what",
    "is",
    "2+3",
    "?",
]


def prompts(count: int) -> dict[str, list[dict[str, str]]]:
    """Questions of very different lengths."""
    return {
        f"q{i}": [{"role": "user", "content": " ".join((WORDS * 9)[i : i + 1 + (i * 37) % 60])}] for i in range(count)
    }


def generator(kind: str = "qwen2", batch: int | None = None, **changes) -> TransformersGenerator:
    return TransformersGenerator(tiny.model(kind=kind, **changes).eval(), tiny.tokenizer(), "tiny", batch)


def by_key(answers: Sequence[Answer]) -> dict[tuple[str, int], tuple[str, str, int]]:
    keys = [(a.request.problem, a.request.index) for a in answers]
    assert len(set(keys)) == len(keys)
    return {key: (a.text, a.finish, a.tokens) for key, a in zip(keys, answers, strict=True)}


@torch.no_grad()
def written_alone(g: TransformersGenerator, request: Request, settings: Settings) -> tuple[str, str, int]:
    """The oracle: the whole sequence through the model for every token, in a batch of one."""
    ids = g.encode(request)
    start, limit = len(ids), min(settings.max_new_tokens, g.context - len(ids))
    while len(ids) - start < limit:
        logits = g.model(input_ids=torch.tensor([ids]), use_cache=False).logits[:, -1]
        step = torch.tensor([len(ids) - start])
        ids.append(int(draw(logits, torch.tensor([request.seed]), step, settings.temperature, settings.top_p)))
        if ids[-1] in g.eos:
            return g.text_of(ids[start:-1]), "stop", len(ids) - start
    return g.text_of(ids[start:]), "length", limit


CASES = {
    "grouped heads": ("qwen2", {}),
    "tied": ("llama", {"tie": True}),
    "sliding window": ("mistral", {"sliding_window": 9}),
}


@pytest.mark.parametrize("settings", [Settings(1.0, 1.0, 40), Settings(0.7, 0.9, 40), Settings(0.0, 1.0, 40)], ids=str)
@pytest.mark.parametrize(("kind", "changes"), CASES.values(), ids=CASES)
def test_equals_one_sample_at_a_time_without_a_cache(kind: str, changes: dict, settings: Settings, monkeypatch) -> None:
    """Rows join and leave all the time (batch 5), and narrow buffers make them move."""
    monkeypatch.setattr(kv_rows, "COLUMNS", 16)
    g = generator(kind, batch=5, **changes)
    requests = requests_for("t", prompts(6), 2, 2, {})  # a seed with which some answers end early in every case
    answers = by_key(list(g.generate(requests, settings)))
    assert answers == {(r.problem, r.index): written_alone(g, r, settings) for r in requests}
    if settings.temperature == 1.0:
        assert {finish for _, finish, _ in answers.values()} == {"stop", "length"}, (
            "the case needs rows that leave early"
        )


@pytest.mark.parametrize("columns", [1, 60, 200, 700])
def test_rows_that_memory_does_not_hold_wait_and_come_out_the_same(columns: int, monkeypatch) -> None:
    """Memory for so many columns in all: from one row at a time to nearly all rows."""
    monkeypatch.setattr(kv_rows, "COLUMNS", 8)
    g, settings = generator(batch=20), Settings(1.0, 1.0, 30)
    requests = requests_for("t", prompts(6), 3, 0, {})
    free = by_key(list(g.generate(requests, settings)))
    monkeypatch.setattr(g, "memory", lambda: columns * g.cell)
    shapes = watch(g)
    assert by_key(list(g.generate(requests, settings))) == free
    rows = [count for count, width in shapes if width == 1]
    assert max(rows) <= max(1, columns // 8)
    assert columns > 1 or set(rows) == {1}
    assert g.cell == 2 * 2 * 8 * 2 * 4  # layers, heads, their size, keys and values, bytes


def test_running_out_of_memory_says_what_to_do(monkeypatch) -> None:
    g = generator(batch=8)
    assert g.cell

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(g.model, "forward", full)
    with pytest.raises(RankTunerError, match="what is finished is kept; run the same command with --batch 4"):
        list(g.generate(requests_for("t", prompts(2), 1, 0, {}), Settings()))


def test_a_sample_does_not_depend_on_its_neighbours() -> None:
    g, settings = generator(batch=64), Settings(1.0, 1.0, 24)
    requests = requests_for("t", prompts(6), 4, 0, {})
    together = by_key(list(g.generate(requests, settings)))
    apart = by_key([a for r in reversed(requests) for a in g.generate([r], settings)])
    assert together == apart
    assert len({text for text, _, _ in together.values()}) > 20, "samples of one problem must differ"


def test_greedy_equals_generate() -> None:
    g = generator(batch=16)
    requests = requests_for("t", prompts(12), 1, 0, {})
    for answer in g.generate(requests, Settings(0.0, 1.0, 30)):
        ids = torch.tensor([g.encode(answer.request)])
        out = g.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30)
        assert answer.text == g.text_of(out[0, ids.shape[1] :].tolist())


def watch(g: TransformersGenerator) -> list[tuple[int, ...]]:
    """The shapes of everything the model is run on from now on."""
    shapes: list[tuple[int, ...]] = []
    g.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


def test_a_prompt_is_run_once_for_all_samples_of_its_problem() -> None:
    g = generator(batch=8)
    assert g.cell  # runs one token, once
    shapes = watch(g)
    answers = list(g.generate(requests_for("t", prompts(5), 4, 0, {}), Settings(1.0, 1.0, 8)))
    assert len(answers) == 20
    assert sum(rows for rows, columns in shapes if columns > 1) == 5


def test_finished_rows_are_not_run_again() -> None:
    g = generator(batch=32)
    assert g.cell
    shapes = watch(g)
    answers = list(g.generate(requests_for("t", prompts(4), 8, 0, {}), Settings(1.0, 1.0, 60)))
    # The first token of each sample comes from the prompt's own run.
    assert sum(rows for rows, columns in shapes if columns == 1) == sum(a.tokens - 1 for a in answers)


def test_more_samples_than_rows() -> None:
    g, settings = generator(batch=3), Settings(1.0, 1.0, 10)
    requests = requests_for("t", prompts(2), 8, 0, {})
    assert by_key(list(g.generate(requests, settings))) == by_key(list(generator().generate(requests, settings)))


def test_a_problem_longer_than_the_context_is_an_answer_that_says_so() -> None:
    g = generator(max_position_embeddings=64)
    long = {"long": [{"role": "user", "content": "clips " * 200}], "short": [{"role": "user", "content": "clips"}]}
    answers = {
        (a.request.problem, a.request.index): a for a in g.generate(requests_for("t", long, 2, 0, {}), Settings())
    }
    assert len(answers) == 4
    for index in range(2):
        assert answers["long", index].finish == "error"
        assert "model's context holds 64: no room to answer" in answers["long", index].note
        assert answers["short", index].finish in ("stop", "length")
        assert answers["short", index].tokens <= 64 - len(g.encode(answers["short", index].request))


def test_stop_strings_end_an_answer_and_are_not_part_of_it() -> None:
    g, n = generator(), 6
    requests = requests_for("t", prompts(3), n, 0, {})
    whole = by_key(list(g.generate(requests, Settings(1.0, 1.0, 30))))
    mark = next(text[len(text) // 2 :][:3] for text, _, tokens in whole.values() if tokens > 20)
    cut = by_key(list(g.generate(requests, Settings(1.0, 1.0, 30, stop=(mark,)))))
    stopped = 0
    for key, (text, finish, _) in whole.items():
        assert cut[key][0] == text.split(mark)[0]
        assert cut[key][1] == ("stop" if mark in text else finish)
        stopped += mark in text
    assert stopped


def test_a_base_model_continues_plain_text() -> None:
    g = TransformersGenerator(tiny.model().eval(), tiny.tokenizer(chat=False), "base")
    assert g.form == "plain"
    (request,) = requests_for("t", {"a": "2+3 is"}, 1, 0, {})
    assert g.encode(request) == g.tokenizer("2+3 is")["input_ids"]
    assert len(list(g.generate([request], Settings(1.0, 1.0, 5)))) == 1
    with pytest.raises(InputError, match="no chat template") as caught:
        list(g.generate(requests_for("t", prompts(1), 1, 0, {}), Settings()))
    assert "--prompt plain" in str(caught.value)


def test_messages_go_through_the_template_once() -> None:
    g = generator()
    (request,) = requests_for("t", {"a": [{"role": "user", "content": "hi"}]}, 1, 0, {})
    assert g.tokenizer.decode(g.encode(request)) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_state_space_model_is_refused_by_name() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(vocab_size=404, hidden_size=16, state_size=4, num_hidden_layers=1))
    with pytest.raises(UnsupportedError, match=r"MambaForCausalLM keeps .*--server"):
        TransformersGenerator(model, tiny.tokenizer(), "x")


def test_bad_models_and_sizes_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        TransformersGenerator.load(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no causal language model could be loaded"):
        TransformersGenerator.load(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="batch 0: expected at least 1"):
        generator(batch=0)


def test_loading_gives_a_fingerprint_of_the_content(tmp_path) -> None:
    one, two, same = (TransformersGenerator.load(str(tiny.model_folder(tmp_path / name, seed=s)), device="cpu")
                      for name, s in (("a", 0), ("b", 1), ("c", 0)))  # fmt: skip
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != two.fingerprint
    (tmp_path / "c" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert TransformersGenerator.load(str(tmp_path / "c"), device="cpu").fingerprint != one.fingerprint


def test_gaps_are_filled_from_the_end() -> None:
    for gone in ([], [0], [4], [0, 4], [1, 2], [3, 4], [0, 1, 2, 3, 4], [2, 3, 4]):
        items = list("abcde")
        fill_gaps(items, list(gone))
        assert sorted(items) == sorted(set("abcde") - {"abcde"[i] for i in gone})
