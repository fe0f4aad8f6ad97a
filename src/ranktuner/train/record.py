"""run.json: what was asked, what was decided, with what, and how it ended."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ranktuner.errors import RankTunerError
from ranktuner.findings import provenance
from ranktuner.train.config import TrainConfig
from ranktuner.train.folder import RUN, RunFolder, saving
from ranktuner.train.plan import Plan


def resolve(config: TrainConfig, plan: Plan) -> dict[str, Any]:
    """Return the configuration with every automatic choice that touches a number written out."""
    tree = config.model_dump(mode="json")
    tree["method"], tree["output"] = plan.method, plan.output
    tree["batch"]["size"], tree["batch"]["micro"] = plan.size, plan.micro
    tree["data"]["template"] = plan.template
    tree["model"]["dtype"] = "bf16" if plan.bf16 else "fp32"
    return tree


class Recorder:
    """Keeps run.json: written at the start, and with the outcome at the end, however the run ends."""

    def __init__(self, folder: RunFolder, resolved: dict[str, Any], plan: Plan, main: bool) -> None:
        self._folder, self._main = folder, main
        before = folder.record() or {}
        self._record: dict[str, Any] = {
            "config": resolved,
            "plan": plan.to_dict(),
            "data_fingerprint": plan.fingerprint,
            "eval_fingerprint": plan.eval_fingerprint,
            "seed": resolved["seed"],
            **provenance(git=git_state()),
            "started": before.get("started") or now(),
            "resumed": [*before.get("resumed", []), now()] if before else [],
            "outcome": "running",
        }

    def __enter__(self) -> Recorder:
        self.save()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            # A disk that is full is full here too: the error that ends the run is the one to read.
            with suppress(RankTunerError):
                self.save(outcome=f"failed: {kind.__name__ if kind else ''}: {str(error)[:500]}", ended=now())

    def save(self, **changes: Any) -> None:
        """Write run.json with these fields changed."""
        self._record.update(changes)
        if self._main:
            with saving(f"{self._folder.path / RUN}", self._folder):
                self._folder.write_record(self._record)


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Return the commit of the folder's repository and whether it has changes; None outside of one."""

    def ask(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "changed": bool(ask("status", "--porcelain", "-uno"))}


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
