"""The folder of a run: what it holds, whose it is, and checkpoints that are whole or absent.

    OUTPUT/run.json                 resolved configuration, plan, versions, data fingerprint, outcome
    OUTPUT/metrics.jsonl            one JSON object a logged step
    OUTPUT/checkpoints/step-N/      everything needed to go on after step N
    OUTPUT/model/                   the result: a model folder, or an adapter for `ranktuner merge`

A checkpoint is written under `checkpoints/.part` and renamed when its last file is closed: a kill leaves at most that
folder behind, never a checkpoint that only looks whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranktuner.errors import InputError, RankTunerError, UnsupportedError
from ranktuner.lock import HeldError, Lock
from ranktuner.train.config import changed

RUN, METRICS, CHECKPOINTS, MODEL, STATE = "run.json", "metrics.jsonl", "checkpoints", "model", "ranktuner.json"
PART, LOCK = ".part", ".lock"
FREE_TO_CHANGE = ("telemetry", "checkpoint", "output")
"""Sections that a resumed run may change: they do not touch a number."""
FREE_KEYS = (
    *("data.source", "data.eval"),  # their content is held by its fingerprint
    *("batch.micro", "model.gradient_checkpointing", "model.attention", "model.trust_remote_code"),
)


@dataclass(frozen=True)
class Claim:
    """Where a run goes on."""

    step: int
    checkpoint: str | None
    finished: bool


class RunFolder:
    """One run's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.checkpoints = self.path / CHECKPOINTS
        self.model = self.path / MODEL
        self.metrics = self.path / METRICS
        self._lock: Lock | None = None

    def hold(self) -> None:
        """Have the folder alone until `release`: two runs in it would delete each other's checkpoints."""
        try:
            with saving(f"{self.path}", self):
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = Lock(self.path / LOCK)
        except HeldError as owner:
            raise InputError(
                f"{self.path}: {owner} trains in this folder now; wait for it, or choose another --output"
            ) from None

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.release()

    def record(self) -> dict[str, Any] | None:
        """Return run.json, or None where there is none."""
        file = self.path / RUN
        if not file.exists():
            return None
        try:
            record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(
                f"{file}: not readable ({error}); move the folder away, or choose another --output"
            ) from None
        return record

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write run.json, whole or not at all."""
        write_json(self.path / RUN, record)

    def check(self, resume: bool) -> None:
        """Refuse a folder that holds something else, or a run that nobody asked to go on with."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: a file, not a folder; choose another --output")
        record = self.record()
        if record is None and self.path.is_dir() and any(file.name != LOCK for file in self.path.iterdir()):
            raise InputError(
                f"{self.path}: the folder is not empty and holds no run of ours (no {RUN}); choose another --output"
            )
        if record is not None and not resume:
            raise InputError(
                f"{self.path}: holds a run already ({record.get('outcome', 'unknown')}, started "
                f"{record.get('started', '?')}); go on with --resume, or choose another --output"
            )

    def claim(self, config: Mapping[str, Any], fingerprint: str, resume: bool) -> Claim:
        """Make sure that the folder is free or holds this very run, and say where to go on.

        Args:
            config: the resolved configuration.
            fingerprint: of the training data.
            resume: whether to continue what is here.
        """
        self.check(resume)
        record = self.record()
        if record is None:
            return Claim(0, None, False)
        differences = [d for d in changed(record["config"], config) if not _is_free(d)]
        if record["data_fingerprint"] != fingerprint:
            differences.append(f"the data's content: {record['data_fingerprint']} -> {fingerprint}")
        if differences:
            raise InputError(
                f"{self.path}: its checkpoints come from another configuration ({'; '.join(differences)}); "
                "give the same settings to --resume, or choose another --output"
            )
        if record.get("outcome") == "finished":
            return Claim(0, None, True)
        if config["sharding"] == "native":
            raise UnsupportedError(
                f"{self.path}: sharding=native cannot save its optimiser, so there is no checkpoint to resume from; "
                "start again in another --output, or use sharding=accelerate"
            )
        last = self.last_checkpoint()
        step = int(last.name.removeprefix("step-")) if last else 0
        self.truncate_metrics(step)
        return Claim(step, str(last) if last else None, False)

    def last_checkpoint(self) -> Path | None:
        """Return the checkpoint of the highest step."""
        found = self.steps()
        return self.checkpoints / f"step-{found[-1]}" if found else None

    def steps(self) -> list[int]:
        """Return the steps that have a whole checkpoint, in order."""
        if not self.checkpoints.is_dir():
            return []
        matches = (re.fullmatch(r"step-(\d+)", p.name) for p in self.checkpoints.iterdir())
        return sorted(int(m.group(1)) for m in matches if m)

    def part(self) -> Path:
        """Return the folder that a checkpoint is written in, emptied of what a killed run left."""
        part = self.checkpoints / PART
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        return part

    def publish(self, written: Path, step: int, keep: int) -> Path:
        """Give a written checkpoint its name, and delete the oldest beyond `keep`."""
        target = self.checkpoints / f"step-{step}"
        if target.exists():
            # The same step again (a resumed run that saves at once): what is there is as good.
            shutil.rmtree(written)
        else:
            sync(written)
            written.rename(target)
            _sync_folder(self.checkpoints)
        shutil.rmtree(self.checkpoints / PART, ignore_errors=True)
        for old in self.steps()[:-keep]:
            # Out of sight first: a kill in the middle of a deletion must not leave half a checkpoint with its name.
            doomed = self.checkpoints / f".old-{old}"
            (self.checkpoints / f"step-{old}").rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        for doomed in self.checkpoints.glob(".old-*"):
            shutil.rmtree(doomed, ignore_errors=True)
        return target

    def publish_model(self, written: Path) -> None:
        """Give the written result its name; an older one goes."""
        sync(written)
        old = self.path / ".model.old"
        shutil.rmtree(old, ignore_errors=True)
        if self.model.exists():
            self.model.rename(old)
        written.rename(self.model)
        shutil.rmtree(old, ignore_errors=True)

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines after `step`: the resumed run writes them again."""
        if not self.metrics.exists():
            return
        lines = [line for line in self.metrics.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
        part = self.metrics.with_suffix(PART)
        part.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        part.replace(self.metrics)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + PART)
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def sync(folder: Path) -> None:
    """Have every file of a folder written through to the disk, so that a rename never outruns its content."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())


@contextmanager
def saving(what: str, folder: RunFolder) -> Iterator[None]:
    """Turn what a full or failing disk raises into an error that says what is still there and how to go on."""
    try:
        yield
    except RankTunerError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise _cannot_save(error, folder, what) from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # its own base class is Exception
            raise
        raise _cannot_save(error, folder, what) from error


def _cannot_save(error: Exception, folder: RunFolder, what: str) -> RankTunerError:
    there = next(place for place in (folder.path, *folder.path.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free / 2**20
    last = folder.last_checkpoint()
    kept = f"the last good checkpoint is {last}" if last else "there is no earlier checkpoint"
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return RankTunerError(
        f"{what} could not be written ({reason}; {free:.0f} MiB free on the disk); {kept}; "
        "make room and go on with --resume"
    )


def _is_free(difference: str) -> bool:
    name = difference.partition(":")[0]
    return name.split(".")[0] in FREE_TO_CHANGE or name in FREE_KEYS


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):
        return float("inf")  # a line that a kill cut short


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
