"""The embedded generator: any transformers causal model, many samples at once.

A problem's prompt is run once and shared by its n samples; a finished row leaves the batch at the same step, and the
next problem takes the free rows. Each sample draws from its own noise (see `noise`), so what stands beside it in the
batch changes its logits by rounding only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ranktuner.errors import InputError, RankTunerError, UnsupportedError
from ranktuner.evals.generators import cut_at_stop
from ranktuner.evals.generators.fingerprint import fingerprint_of
from ranktuner.evals.generators.kv_rows import Rows, cell_of, fill_gaps
from ranktuner.evals.generators.noise import draw
from ranktuner.evals.generators.prompting import form_of, need_folder, prompt_ids
from ranktuner.evals.samples import Answer, Request, Settings

if TYPE_CHECKING:
    from torch import Tensor

BATCH = {"cpu": 64}
"""Rows in a batch by kind of device, unless the user says otherwise."""
BATCH_ELSEWHERE = 256

PREFILL_TOKENS = 16_384
"""At most this many prompt tokens, padding included, are run in one forward."""

MEMORY_SHARE = 0.6
"""Share of the free memory for keys and values; the rest is for logits, activations and others."""

MEMINFO = Path("/proc/meminfo")


@dataclass
class _Prompt:
    """A problem's prompt with the requests that share it."""

    ids: list[int]
    requests: list[Request]
    limit: int
    """New tokens: the settings' limit, or what the context leaves."""


@dataclass
class _Row:
    """A sample that is being written."""

    request: Request
    limit: int
    ids: list[int] = field(default_factory=list)


class TransformersGenerator:
    """Answers from a transformers model in this process."""

    name = "transformers"

    def __init__(self, model: Any, tokenizer: Any, fingerprint: str, batch: int | None = None) -> None:
        """Take a loaded model in eval mode.

        Args:
            model: a causal language model whose layers are attention (full or sliding).
            tokenizer: its tokenizer; with a chat template it is a chat model, else a base model.
            fingerprint: of the weights and tokenizer; see `fingerprint_of`.
            batch: rows that are generated at once.
        """
        if batch is not None and batch < 1:
            raise InputError(f"batch {batch}: expected at least 1 row")
        _refuse_other_caches(model)
        self.model, self.tokenizer, self.fingerprint = model.eval(), tokenizer, fingerprint
        self.batch = batch or BATCH.get(model.device.type, BATCH_ELSEWHERE)
        self.form = form_of(tokenizer)
        self.eos = _eos_of(model, tokenizer)
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    @staticmethod
    def load(
        model: str,
        *,
        device: str | None = None,
        dtype: str = "auto",
        batch: int | None = None,
        revision: str | None = None,
    ) -> TransformersGenerator:
        """Load a model folder or hub id; `device` defaults to a CUDA device where there is one."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        need_folder(model)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            others = f", cuda ({torch.cuda.device_count()} found)" if torch.cuda.is_available() else ""
            raise InputError(
                f"--device {device}: {str(error).splitlines()[0]:.200}; expected a device of this machine: cpu{others}"
            ) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
            loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--model {model}: no causal language model could be loaded from it ({error}): expected a folder with "
                "config.json, weights and tokenizer, or a hub id that can be reached"
            ) from error
        return TransformersGenerator(loaded.to(device), tokenizer, fingerprint_of(model, loaded), batch)

    def generate(self, requests: Sequence[Request], settings: Settings) -> Iterator[Answer]:
        """Yield the answers as they finish; the longest prompts go first, the samples of a problem together."""
        waiting: deque[_Prompt] = deque()
        for prompt in self._prompts(requests, settings):
            if isinstance(prompt, Answer):
                yield prompt
            else:
                waiting.append(prompt)
        waiting = deque(sorted(waiting, key=lambda prompt: -len(prompt.ids)))
        yield from _Decoding(self, settings, waiting).run()

    def _prompts(self, requests: Sequence[Request], settings: Settings) -> Iterator[_Prompt | Answer]:
        """Yield each problem's prompt in tokens, in portions of at most a batch; or answers that say why not."""
        for _, same in groupby(requests, key=lambda request: (request.problem, request.prompt_hash)):
            group = list(same)
            ids = self.encode(group[0])
            room = settings.max_new_tokens if self.context is None else self.context - len(ids)
            if not ids or room < 1:
                note = (
                    f"the prompt has {len(ids)} tokens and the model's context holds {self.context}: no room to answer"
                )
                yield from (Answer(request, "", "error", 0, note) for request in group)
                continue
            for at in range(0, len(group), self.batch):
                yield _Prompt(ids, group[at : at + self.batch], min(settings.max_new_tokens, room))

    @cached_property
    def cell(self) -> int:
        """Bytes of keys and values of one token, found by running one."""
        import torch
        from transformers import DynamicCache

        cache = DynamicCache()
        with torch.inference_mode():
            self.model(torch.zeros(1, 1, dtype=torch.long, device=self.model.device), past_key_values=cache)
        return cell_of(cache)

    def memory(self) -> int:
        """Return the bytes that keys and values may take: a share of what is free now."""
        import torch

        if self.model.device.type == "cuda":
            return int(MEMORY_SHARE * torch.cuda.mem_get_info(self.model.device)[0])
        lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
        free = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), 8 * 2**20)
        return int(MEMORY_SHARE * 1024 * free)

    def encode(self, request: Request) -> list[int]:
        """Return the prompt's tokens; see `prompt_ids`."""
        return prompt_ids(self.tokenizer, request.prompt)

    def text_of(self, ids: list[int]) -> str:
        """Return generated tokens as text, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


class _Decoding:
    """One call of `generate`: the running rows and what waits for a place."""

    def __init__(self, generator: TransformersGenerator, settings: Settings, waiting: deque[_Prompt]) -> None:
        self.generator, self.settings, self.waiting = generator, settings, waiting
        self.device = generator.model.device
        total = sum(len(prompt.requests) for prompt in waiting)
        self.rows: list[_Row] = []
        self.kv = Rows(min(generator.batch, max(total, 1)), generator.memory(), generator.cell)
        # A stop string is looked for in the text of the last tokens; each of its characters may be a token of its own.
        self.tail = max((len(s) for s in settings.stop), default=0) + 8

    def run(self) -> Iterator[Answer]:
        import torch

        while self.rows or self.waiting:
            try:
                with torch.inference_mode():
                    answers = self._admit()
                    if not answers and self.rows:
                        answers = self._step()
            except torch.OutOfMemoryError as error:
                raise RankTunerError(
                    f"out of memory with {len(self.rows)} rows at once: what is finished is kept; run the same command "
                    f"with --batch {max(1, self.generator.batch // 2)} to go on"
                ) from error
            yield from answers

    def _admit(self) -> list[Answer]:
        """Run the next prompts for which there is room, all their samples at once, and draw the first tokens."""
        taken: list[_Prompt] = []
        # The first is the longest, so it gives the width of the padded prompts.
        free = self.kv.free(len(self.waiting[0].ids)) if self.waiting else 0
        if not self.rows and self.waiting and len(self.waiting[0].requests) > free:
            self._split(free)
        while self.waiting and len(self.waiting[0].requests) <= free:
            if taken and (len(taken) + 1) * len(taken[0].ids) > PREFILL_TOKENS:
                break
            taken.append(self.waiting.popleft())
            free -= len(taken[-1].requests)
        if not taken:
            return []
        cache, logits_PV = self._prefill([prompt.ids for prompt in taken])
        picks = [p for p, prompt in enumerate(taken) for _ in prompt.requests]
        new = [_Row(request, prompt.limit) for prompt in taken for request in prompt.requests]
        self.kv.admit(cache, picks, [len(taken[p].ids) for p in picks])
        at = len(self.rows)
        self.rows += new
        return self._extend(range(at, len(self.rows)), logits_PV[picks])

    def _split(self, free: int) -> None:
        """Divide the first prompt's requests, where memory holds fewer rows than it has samples."""
        first = self.waiting.popleft()
        self.waiting.appendleft(_Prompt(first.ids, first.requests[free:], first.limit))
        self.waiting.appendleft(_Prompt(first.ids, first.requests[:free], first.limit))

    def _send_back(self, rows: list[int]) -> None:
        """Let rows wait for another turn: memory holds no more columns for so many."""
        for i in rows:
            row = self.rows[i]
            self.waiting.appendleft(_Prompt(self.generator.encode(row.request), [row.request], row.limit))
        fill_gaps(self.rows, rows)
        self.kv.remove(rows)

    def _prefill(self, prompts: list[list[int]]) -> tuple[Any, Tensor]:
        """Run prompts padded on the left; return their cache and the logits of the next token."""
        import torch
        from transformers import DynamicCache

        width = max(map(len, prompts))
        pad = self.generator.eos[0] if self.generator.eos else 0
        ids_PT = torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts], device=self.device)
        starts_P = torch.tensor([width - len(ids) for ids in prompts], device=self.device)
        columns_T = torch.arange(width, device=self.device)
        cache = (
            DynamicCache()
        )  # without the config: sliding layers must keep all columns too, the mask does the sliding
        out = self.generator.model(
            input_ids=ids_PT,
            attention_mask=columns_T[None] >= starts_P[:, None],
            position_ids=(columns_T[None] - starts_P[:, None]).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cache, out.logits[:, -1]

    def _step(self) -> list[Answer]:
        """Add one token to every row."""
        import torch

        kv = self.kv
        if over := kv.too_many():
            self._send_back(over)
        kv.make_room()
        positions = [[kv.end - start] for start in kv.starts]
        out = self.generator.model(
            input_ids=torch.tensor([[row.ids[-1]] for row in self.rows], device=self.device),
            attention_mask=kv.mask(self.device),
            position_ids=torch.tensor(positions, device=self.device),
            past_key_values=kv.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        kv.end += 1
        return self._extend(range(len(self.rows)), out.logits[:, -1])

    def _extend(self, positions: range, logits_BV: Tensor) -> list[Answer]:
        """Draw the next token of the rows at these positions; take out what is finished and return it."""
        import torch

        rows = [self.rows[i] for i in positions]
        seeds = torch.tensor([row.request.seed for row in rows], device=self.device)
        steps = torch.tensor([len(row.ids) for row in rows], device=self.device)
        tokens = draw(logits_BV, seeds, steps, self.settings.temperature, self.settings.top_p).tolist()
        for row, token in zip(rows, tokens, strict=True):
            row.ids.append(token)
        finished = [(i, answer) for i, row in zip(positions, rows, strict=True) if (answer := self._finished(row))]
        if finished:
            gone = [i for i, _ in finished]
            fill_gaps(self.rows, gone)
            self.kv.remove(gone)
        return [answer for _, answer in finished]

    def _finished(self, row: _Row) -> Answer | None:
        """Return the row's answer if its last token ends it."""
        generator, stop = self.generator, self.settings.stop
        if row.ids[-1] in generator.eos:
            return Answer(row.request, *_stopped(generator.text_of(row.ids[:-1]), stop), tokens=len(row.ids))
        if stop and cut_at_stop(generator.text_of(row.ids[-self.tail :]), stop)[1]:
            text, found = cut_at_stop(generator.text_of(row.ids), stop)
            if found:
                return Answer(row.request, text, "stop", len(row.ids))
        if len(row.ids) >= row.limit:
            return Answer(row.request, generator.text_of(row.ids), "length", len(row.ids))
        return None


def _stopped(text: str, stop: tuple[str, ...]) -> tuple[str, Literal["stop"]]:
    return cut_at_stop(text, stop)[0], "stop"


def _eos_of(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an answer: the model's generation config's and the tokenizer's own."""
    config = getattr(model, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    ids = list(found) if isinstance(found, (list, tuple)) else [found]
    return tuple(dict.fromkeys(i for i in [*ids, tokenizer.eos_token_id] if i is not None))


def _refuse_other_caches(model: Any) -> None:
    """Refuse models whose memory is not keys and values of attention: their rows cannot be moved and masked."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    other = {type(layer).__name__ for layer in DynamicCache(config=model.config).layers} - {
        DynamicLayer.__name__,
        DynamicSlidingWindowLayer.__name__,
    }
    if other or model.config.is_encoder_decoder:
        kinds = ", ".join(sorted(other)) or "an encoder"
        raise UnsupportedError(
            f"{type(model).__name__} keeps {kinds} beside or instead of attention keys and values, which the embedded "
            "generator cannot batch rightly: serve the model (--server URL) or use --generator vllm"
        )
