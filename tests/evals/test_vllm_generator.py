"""The vLLM generator against a stand-in with vLLM's interface: what it asks, and what it makes of the answers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tiny

from ranktuner.errors import InputError, MissingExtraError
from ranktuner.evals.generators.vllm_engine import VllmGenerator
from ranktuner.evals.samples import Settings, requests_for


@dataclass
class SamplingParams:
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    stop: Any


class LLM:
    def __init__(self, **options: Any) -> None:
        self.options, self.calls = options, []
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=64))

    def get_tokenizer(self) -> Any:
        return tiny.tokenizer()

    def generate(self, prompts: list[Any], params: list[Any], use_tqdm: bool) -> list[Any]:
        self.calls.append((prompts, params))
        return [SimpleNamespace(outputs=[written(p)]) for p in params]


def written(p: SamplingParams) -> SimpleNamespace:
    reason = ["stop", "length"][p.seed % 2]
    return SimpleNamespace(text=f"{p.seed} cut", token_ids=[1, 2], finish_reason=reason)


@pytest.fixture
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)


@pytest.mark.usefixtures("_vllm")
def test_one_call_with_a_seed_for_each_sample(tmp_path) -> None:
    folder = tiny.model_folder(tmp_path / "model")
    generator = VllmGenerator.load(str(folder), dtype="float32")
    assert generator.engine.options == {"model": str(folder), "dtype": "float32", "enable_prefix_caching": True}
    assert generator.fingerprint.startswith("sha256:")
    prompts = {p: [{"role": "user", "content": p}] for p in ("one", "two")}
    prompts["long"] = [{"role": "user", "content": "clips " * 100}]
    requests = requests_for("t", prompts, 3, 0, {})
    answers = list(generator.generate(requests, Settings(0.5, 0.9, 1000, stop=("cut",))))
    ((asked, params),) = generator.engine.calls
    assert [p.seed for p in params] == [r.seed for r in requests if r.problem != "long"]
    for prompt, p in zip(asked, params, strict=True):
        assert (p.temperature, p.top_p, p.stop) == (0.5, 0.9, ["cut"])
        assert p.max_tokens == 64 - len(prompt["prompt_token_ids"])
    assert (
        generator.tokenizer.decode(asked[0]["prompt_token_ids"])
        == "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n"
    )
    by_key = {(a.request.problem, a.request.index): a for a in answers}
    assert len(by_key) == 9
    for (problem, _), answer in by_key.items():
        if problem == "long":
            assert answer.finish == "error"
            assert "context holds 64" in answer.note
        else:
            assert (answer.text, answer.tokens) == (f"{answer.request.seed} ", 2)
            assert answer.finish == ["stop", "length"][answer.request.seed % 2]


@pytest.mark.usefixtures("_vllm")
def test_portions_bound_what_an_interruption_costs(tmp_path) -> None:
    generator = VllmGenerator(LLM(), "x", portion=4)
    requests = requests_for("t", {"a": [{"role": "user", "content": "a"}]}, 10, 0, {})
    taken = generator.generate(requests, Settings())
    next(taken)
    assert [len(params) for _, params in generator.engine.calls] == [4]
    assert len(list(taken)) == 9
    assert [len(params) for _, params in generator.engine.calls] == [4, 4, 2]


def test_without_vllm_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match=r"ranktuner\[vllm\]"):
        VllmGenerator.load("x")


@pytest.mark.usefixtures("_vllm")
def test_a_missing_folder_is_refused() -> None:
    with pytest.raises(InputError, match="no such folder"):
        VllmGenerator.load("./absent")
