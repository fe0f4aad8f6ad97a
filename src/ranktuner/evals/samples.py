"""The sample store: every finished answer, once, under the settings that made it.

A store is one file for one task. Its key is (task, problem, index, prompt hash, decoding settings, model
fingerprint): the last two are the same for the whole file and are refused when they differ, the first four say what is
still missing. Nothing finished is made twice, nothing is lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ranktuner.errors import DataError, InputError
from ranktuner.evals.journal import Journal, read_header, read_records
from ranktuner.evals.records import Problem, Sample

SCHEMA = 1
"""Version of the file's layout."""

Message = Mapping[str, str]
Prompt = str | Sequence[Message]
"""A text to continue, or the messages of a chat."""


def seed_of(task: str, problem: str, index: int, run_seed: int = 0) -> int:
    """Return the seed of one sample: the same for the same (task, problem, index) whoever else is generated beside it.

    31 bits, which every server accepts.
    """
    text = "\x1f".join([task, problem, str(index), str(run_seed)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def hash_of(prompt: Prompt) -> str:
    """Return the prompt hash: of the messages before any chat template, so that it is the same for every generator."""
    plain = prompt if isinstance(prompt, str) else [dict(m) for m in prompt]
    text = json.dumps(plain, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Settings:
    """How the answers of a run are drawn: the task's protocol, the user's changes, the seed. Part of every key."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """The smallest set of likeliest tokens with this much probability is drawn from; 1 is all of them."""
    max_new_tokens: int = 4096
    seed: int = 0
    """Of the whole run; each sample's own seed is derived from it."""
    form: Literal["chat", "plain"] = "chat"
    """`chat`: messages in the model's chat template; `plain`: a text that a base model continues."""
    stop: tuple[str, ...] = ()
    """Strings at which an answer ends; they are not part of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature {self.temperature}: expected 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p {self.top_p}: expected more than 0 and at most 1")
        if self.max_new_tokens < 1:
            raise InputError(f"max_new_tokens {self.max_new_tokens}: expected at least 1")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as they stand in a store."""
        return {**asdict(self), "stop": list(self.stop)}


@dataclass(frozen=True)
class Request:
    """One answer that is still to be made."""

    task: str
    problem: str
    index: int
    seed: int
    prompt: Prompt
    prompt_hash: str


@dataclass(frozen=True)
class Answer:
    """What a generator made of one request."""

    request: Request
    text: str
    finish: Literal["stop", "length", "error"]
    """`length`: the limit of tokens was hit; `error`: nothing could be generated, `note` says why."""
    tokens: int
    note: str = ""


def requests_for(
    task: str, prompts: Mapping[str, Prompt], n: int, run_seed: int, done: Mapping[tuple[str, int], str]
) -> list[Request]:
    """Return what is missing of n samples for every problem, problems in order, indices in order.

    Args:
        task: its name, part of every seed.
        prompts: problem id -> prompt.
        n: samples wanted of each problem.
        run_seed: see `Settings.seed`.
        done: what the store holds, (problem, index) -> prompt hash; another prompt for the same problem is an error.
    """
    found = []
    for problem, prompt in prompts.items():
        digest = hash_of(prompt)
        for index in range(n):
            stored = done.get((problem, index))
            if stored is None:
                seed = seed_of(task, problem, index, run_seed)
                found.append(Request(task, problem, index, seed, prompt, digest))
            elif stored != digest:
                raise InputError(
                    f"task {task}, problem {problem!r}: the store holds an answer to another prompt (hash {stored}, "
                    f"now {digest}): the task's prompt or data changed; give this run another --output, or --fresh"
                )
    return found


class SampleStore:
    """One task's samples on disk, held by one writer; a context manager."""

    def __init__(
        self,
        path: str | Path,
        *,
        task: str,
        model: str,
        settings: Settings,
        facts: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Open or start the store.

        Args:
            path: the file.
            task: the task's name.
            model: fingerprint of the model.
            settings: how answers are drawn.
            facts: what else a reader should know (names, versions, data folder); written to a new store's header only.
            say: is told of repairs.
        """
        protocol = {"task": task, "model": model, "decoding": settings.to_json()}
        header = {"ranktuner": "samples", "schema": SCHEMA, **protocol, "facts": dict(facts or {})}
        self.task, self.model, self.settings = task, model, settings
        self._journal = Journal(path, header, say)
        try:
            self.header = check_header(self._journal.header, self._journal.path)
            self.done = _keys(self._journal.path)
            if self.done:
                _refuse_other(self._journal.path, self.header, protocol)
            elif self.header != header:  # of a run that was stopped before its first sample: nothing speaks for it
                self._journal.begin_again(header)
                self.header = header
        except BaseException:
            self._journal.close()
            raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._journal.path

    def add(self, answer: Answer) -> Sample:
        """Append a finished answer and return it as stored; a second answer to the same request is an error of ours."""
        request = answer.request
        key = (request.problem, request.index)
        assert key not in self.done, f"{self.path}: {key} is finished already"
        sample = Sample(
            task=self.task,
            problem=request.problem,
            index=request.index,
            seed=request.seed,
            text=answer.text,
            finish=answer.finish,
            tokens=answer.tokens,
            prompt_hash=request.prompt_hash,
            decoding=self.settings.to_json(),
            model=self.model,
            note=answer.note,
        )
        self._journal.append(asdict(sample))
        self.done[key] = request.prompt_hash
        return sample

    def missing(self, prompts: Mapping[str, Prompt], n: int) -> list[Request]:
        """Return the requests that the store does not hold yet; see `requests_for`."""
        return requests_for(self.task, prompts, n, self.settings.seed, self.done)

    def samples(self) -> Iterator[Sample]:
        """Yield everything in the store, in the order it was finished."""
        return read_samples(self.path)

    def close(self) -> None:
        """Force everything to disk and let others write."""
        self._journal.close()

    def __enter__(self) -> SampleStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_header(header: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the header if it is a sample store's of this version."""
    if header.get("ranktuner") != "samples" or "task" not in header:
        raise DataError(f"{path}: not a sample store: its first line is not the header that `ranktuner eval` writes")
    if header.get("schema") != SCHEMA:
        raise DataError(f"{path}: a sample store of schema {header.get('schema')!r}, this version reads {SCHEMA}")
    return dict(header)


def read_samples(path: str | Path, say: Callable[[str], None] | None = None) -> Iterator[Sample]:
    """Yield the samples of a store without holding it; a torn last line is left out."""
    path = Path(path)
    check_header(read_header(path), path)
    names = {f.name for f in fields(Sample)}
    for record in read_records(path, say):
        if not names - {"note"} <= record.keys() or record.keys() - names:
            raise DataError(f"{path}: a line has the keys {sorted(record)}, expected {sorted(names)}")
        yield Sample(**record)


def _keys(path: Path) -> dict[tuple[str, int], str]:
    done: dict[tuple[str, int], str] = {}
    for sample in read_samples(path):
        key = (sample.problem, sample.index)
        if key in done:
            raise DataError(
                f"{path}: problem {sample.problem!r}, sample {sample.index} stands in it twice: it was joined from two "
                "files by hand; remove one of the lines"
            )
        done[key] = sample.prompt_hash
    return done


def _refuse_other(path: Path, header: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a store that another model, task or protocol made, naming every difference."""
    old, new = _flat(header), _flat(wanted)
    differ = [
        f"{name}: the store has {old.get(name)!r}, this run {new[name]!r}" for name in new if old.get(name) != new[name]
    ]
    if differ:
        raise InputError(
            f"{path} was made under another protocol ({'; '.join(differ)}): give this run another --output, or --fresh "
            "to set the old store aside"
        )


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: record.get(name) for name in ("task", "model")}
    return {**plain, **dict(record.get("decoding") or {})}


def prompts_of(problems: Iterable[Problem], prompt: Callable[[Problem], Prompt]) -> dict[str, Prompt]:
    """Return problem id -> prompt, refusing an id that appears twice (its samples could not be told apart)."""
    prompts: dict[str, Prompt] = {}
    for problem in problems:
        if problem.id in prompts:
            raise DataError(f"two problems have the id {problem.id!r}: ids must differ within a task")
        prompts[problem.id] = prompt(problem)
    return prompts
