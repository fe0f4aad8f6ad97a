"""vLLM in this process (extra `vllm`): its own batching, one seed for each sample.

Samples are as reproducible as vLLM's kernels are: the seed fixes the noise, not the rounding of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ranktuner.errors import missing_extra
from ranktuner.evals.generators import cut_at_stop
from ranktuner.evals.generators.fingerprint import fingerprint_of
from ranktuner.evals.generators.prompting import form_of, need_folder, no_room, prompt_ids
from ranktuner.evals.samples import Answer, Request, Settings

PORTION = 2048
"""Requests in one call. vLLM returns a call's answers together, so this is what an interruption can cost."""


class VllmGenerator:
    """Answers from vLLM in this process."""

    name = "vllm"

    def __init__(self, engine: Any, fingerprint: str, portion: int = PORTION) -> None:
        """Take a `vllm.LLM`."""
        self.engine, self.fingerprint, self.portion = engine, fingerprint, portion
        self.tokenizer = engine.get_tokenizer()
        self.form = form_of(self.tokenizer)
        self.context = int(engine.llm_engine.model_config.max_model_len)

    @staticmethod
    def load(model: str, *, dtype: str = "auto", **options: Any) -> VllmGenerator:
        """Load a model folder or hub id; `options` go to `vllm.LLM` (tensor_parallel_size, ...)."""
        try:
            from vllm import LLM
        except ImportError as error:
            raise missing_extra("vllm", "vllm", "--generator vllm") from error
        need_folder(model)
        # The n samples of a problem share its prompt's blocks.
        engine = LLM(model=model, dtype=dtype, enable_prefix_caching=True, **options)
        return VllmGenerator(engine, fingerprint_of(model))

    def generate(self, requests: Sequence[Request], settings: Settings) -> Iterator[Answer]:
        """Yield the answers, a portion at a time; all the samples of a problem are in one portion where they fit."""
        ready: list[tuple[Request, list[int]]] = []
        ids_of: dict[str, list[int]] = {}
        for request in requests:
            if request.prompt_hash not in ids_of:
                ids_of[request.prompt_hash] = prompt_ids(self.tokenizer, request.prompt)
            ids = ids_of[request.prompt_hash]
            if not ids or len(ids) >= self.context:
                yield from no_room([request], len(ids), self.context)
            else:
                ready.append((request, ids))
        for at in range(0, len(ready), self.portion):
            yield from self._portion(ready[at : at + self.portion], settings)

    def _portion(self, ready: Sequence[tuple[Request, list[int]]], settings: Settings) -> Iterator[Answer]:
        from vllm import SamplingParams

        params = [
            SamplingParams(
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=min(settings.max_new_tokens, self.context - len(ids)),
                seed=request.seed,
                stop=list(settings.stop) or None,
            )
            for request, ids in ready
        ]
        prompts = [{"prompt_token_ids": ids} for _, ids in ready]
        outputs = self.engine.generate(prompts, params, use_tqdm=False)
        for (request, _), output in zip(ready, outputs, strict=True):
            written = output.outputs[0]
            text, _ = cut_at_stop(written.text, settings.stop)
            finish = "length" if written.finish_reason == "length" else "stop"
            yield Answer(request, text, finish, len(written.token_ids))  # type: ignore[arg-type]
