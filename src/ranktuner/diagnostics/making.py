"""From a model and data to token tables: loading, choosing rows, planting, scoring. What the commands call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ranktuner.data.encode import Encoder, Example
from ranktuner.data.shapes import Row
from ranktuner.diagnostics.collect import write_table
from ranktuner.diagnostics.inference_entropy import sample_id
from ranktuner.diagnostics.noise import CORRUPTION_RATIO, LEAST_ROWS
from ranktuner.diagnostics.planting import draw, plant_answers, plant_numbers, plant_sentences, sentences_of
from ranktuner.diagnostics.summaries import need
from ranktuner.diagnostics.table import TokenTable, read_table
from ranktuner.errors import DataError, InputError, missing_extra
from ranktuner.evals.generators.fingerprint import fingerprint_of
from ranktuner.evals.records import Sample
from ranktuner.evals.samples import check_header, hash_of, read_samples

Tell = Callable[[str, int, int], None]
"""Called after every row with the table's name, and the rows and tokens so far."""

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


def _silent(name: str, rows: int, tokens: int) -> None:
    pass


@dataclass(frozen=True)
class Scorer:
    """A loaded model with its tokenizer, and how its rows are encoded and scored."""

    name: str
    model: Any
    tokenizer: Any
    fingerprint: str
    methods: tuple[str, ...] = ()
    """Specs of the methods whose weights every table stores."""
    max_length: int | None = 2048
    template: str = "auto"
    prompt_suffix: str | None = None
    """After the last question, as in training; see `Encoder`."""
    tell: Tell = _silent

    @staticmethod
    def load(name: str, *, dtype: str = "auto", device: str | None = None, **how: Any) -> Scorer:
        """Load a model folder (an adapter's too) or hub id.

        Args:
            name: folder or hub id.
            dtype: one of `DTYPES`; `auto` takes the model's own.
            device: default: a CUDA device where there is one.
            how: the other fields.
        """
        import torch

        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise missing_extra("transformers", "train", "Scoring rows with a model") from error
        if dtype not in DTYPES:
            raise InputError(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
        folder = Path(name).expanduser()
        name = str(folder) if folder.is_dir() else name
        if not folder.is_dir() and (name.count("/") != 1 or name[0] in "./~"):
            # Not even the shape of a hub id: said at once, before anything asks the network.
            raise InputError(f"model {name}: there is no such folder; expected a model folder or a hub id owner/name")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"device {device!r}: {reason}; expected cpu, cuda or cuda:1, as the machine has it"
            ) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"model {name}: no causal language model could be loaded ({reason}); expected a folder with "
                "config.json, weights and tokenizer, or a hub id that can be reached"
            ) from error
        model.to(device).eval()
        return Scorer(Path(name).name or name, model, tokenizer, fingerprint_of(name, model), **how)

    def table(self, path: Path, rows: Sequence[Row], name: str, **meta: Any) -> TokenTable:
        """Score rows into a token table and read it back; `meta` goes into its metadata."""
        encoder = Encoder(self.tokenizer, self.max_length, self.template, self.prompt_suffix)
        words = {"prompt_suffix": encoder.suffix} if encoder.suffix else {}
        return self.table_of(path, encoder.encode(rows), name, template=encoder.template, **words, **meta)

    def table_of(self, path: Path, examples: Iterator[Example], name: str, **meta: Any) -> TokenTable:
        """Score encoded examples into a token table and read it back."""
        facts = {"model": self.name, "model_fingerprint": self.fingerprint, "tokenizer": self._tokenizer_name()}
        write_table(
            path,
            self.model,
            self.tokenizer,
            examples,
            methods=self.methods,
            meta={**facts, "max_length": self.max_length, **meta},
            tell=lambda rows, tokens: self.tell(name, rows, tokens),
        )
        return read_table(path)

    def _tokenizer_name(self) -> str:
        return f"{type(self.tokenizer).__name__} of {len(self.tokenizer)} tokens"


@dataclass(frozen=True)
class Noisy:
    """Rows with planted sentences, and the facts that a token table of them carries."""

    rows: Sequence[Row]
    facts: Mapping[str, Any]


def noisy_rows(
    rows: Sequence[Row], noise: Sequence[Row], *, count: int, seeds: Sequence[int], ratio: float = CORRUPTION_RATIO
) -> list[Noisy]:
    """Plant sentences in drawn rows, once for each seed, which draws rows, places and sentences; no model is needed.

    Args:
        rows: the user's data.
        noise: data whose answers' first sentences are inserted.
        count: rows to draw for each seed; 0 for all.
        seeds: one set each.
        ratio: share of the rows that get a sentence.
    """
    count = min(count or len(rows), len(rows))
    need(count, LEAST_ROWS, "rows")
    sentences = sentences_of(noise, max(1, round(ratio * count)))
    made = []
    for seed in seeds:
        changed, planted = plant_sentences(draw(rows, count, seed), sentences, seed, ratio)
        made.append(Noisy(changed, {"seed": seed, "planted": planted, "corruption_ratio": ratio}))
    return made


def noise_tables(scorer: Scorer, folder: Path, planted: Sequence[Noisy], **meta: Any) -> list[TokenTable]:
    """Score every seed's rows into `noise-SEED.parquet`; `meta` are facts for the tables' metadata."""
    tables = []
    for one in planted:
        seed = one.facts["seed"]
        tables.append(scorer.table(folder / f"noise-{seed}.parquet", one.rows, f"seed {seed}", **meta, **one.facts))
    return tables


def planted_tables(
    scorer: Scorer,
    folder: Path,
    rows: Sequence[Row],
    foreign: Sequence[Row],
    seed: int,
    ratio: float = CORRUPTION_RATIO,
) -> dict[str, TokenTable]:
    """Make a token table of the same rows for each kind of planted noise: what `inspect data --plant` is judged on.

    Args:
        scorer: the model.
        folder: where the tables go.
        rows: the data as it is.
        foreign: data whose sentences are inserted; empty: that kind is left out.
        seed: of what is planted where.
        ratio: share of rows.
    """
    planted = {"other row's answer": plant_answers(rows, seed, ratio), "wrong number": plant_numbers(rows, seed, ratio)}
    if foreign:
        sentences = sentences_of(foreign, max(1, round(ratio * len(rows))))
        planted = {"inserted sentence": plant_sentences(rows, sentences, seed, ratio), **planted}
    tables = {}
    for kind, (changed, pieces) in planted.items():
        path = folder / f"planted-{kind.split()[0]}.parquet"
        tables[kind] = scorer.table(path, changed, kind, seed=seed, planted=pieces, corruption_ratio=ratio)
    return tables


def sample_table(
    scorer: Scorer, path: Path, store: Path, prompts: Mapping[str, Any], *, runs: int, name: str
) -> TokenTable:
    """Score the stored samples of a model into a token table for `inference_entropy`.

    Args:
        scorer: the model that wrote the samples; another one is refused.
        path: the table.
        store: the sample store.
        prompts: problem id -> prompt (messages, or a text for a base model), as the samples were asked.
        runs: sample indices 0 .. runs-1 are scored.
        name: for messages.
    """
    header = check_header(_header(store), store)
    if header.get("model") != scorer.fingerprint:
        raise InputError(
            f"{store} was written by the model {header.get('model')}, --model is {scorer.fingerprint}: inference "
            "entropy is the writer's own; give the model that wrote the samples"
        )
    samples = [s for s in read_samples(store) if s.index < runs and s.finish != "error" and s.text]
    need(len(samples), 1, f"samples with an index below {runs}", str(store))
    changed = [0]
    examples = (_as_example(scorer, sample, prompts, store, changed) for sample in samples)
    # The counts are known only when all samples are encoded: before the pass, and cheap beside it.
    encoded = list(examples)
    facts = {
        "data": str(store),
        "temperature": float(samples[0].decoding.get("temperature", 1.0)),
        "truncated_samples": sum(s.finish == "length" for s in samples),
        "retokenized_samples": changed[0],
    }
    return scorer.table_of(path, iter(encoded), name, **facts)


def prompts_of_store(store: Path, data_dir: Path | None) -> dict[str, Any]:
    """Return problem id -> prompt as the samples of a store were asked, from the store's task and its data."""
    from ranktuner.evals.tasks import task

    header = check_header(_header(store), store)
    of, plain = task(header["task"]), (header.get("decoding") or {}).get("form") == "plain"
    problems = of.load(data_dir, check=False).problems
    return {problem.id: of.plain(problem) if plain else of.messages(problem) for problem in problems}


def _header(store: Path) -> dict[str, Any]:
    from ranktuner.evals.journal import read_header

    return read_header(store)


def _as_example(scorer: Scorer, sample: Sample, prompts: Mapping[str, Any], store: Path, changed: list[int]) -> Example:
    prompt = prompts.get(sample.problem)
    if prompt is None or hash_of(prompt) != sample.prompt_hash:
        what = "is not among the task's problems" if prompt is None else "was asked with another prompt"
        raise DataError(
            f"{store}: problem {sample.problem!r} {what}: give the task and the data folder that the samples "
            "were made with"
        )
    before = _prompt_ids(scorer.tokenizer, prompt)
    answer = scorer.tokenizer(sample.text, add_special_tokens=False)["input_ids"]
    # A store keeps text: now and then the tokenizer cuts it otherwise than the model wrote it (an end token aside).
    changed[0] += abs(sample.tokens - len(answer)) > 1
    ids = np.array([*before, *answer], np.int32)
    learnt = np.arange(len(ids)) >= len(before)
    return Example(sample_id(sample.problem, sample.index), ids, learnt, None, sample.finish == "length")


def _prompt_ids(tokenizer: Any, prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template([dict(m) for m in prompt], add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
