"""The lock: one process at a time, nothing left by a killed one, and no hindrance where the file system has none."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ranktuner.lock import HeldError, Lock

HOLD = """
import sys
from pathlib import Path
from ranktuner.lock import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another(file: Path) -> Iterator[int]:
    """Another process that holds the lock; its number."""
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        yield other.pid
        other.kill()


def test_the_holder_is_named_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    with another(tmp_path / ".lock") as pid, pytest.raises(HeldError, match=f"^process {pid}$"):
        Lock(tmp_path / ".lock")
    Lock(tmp_path / ".lock").release()


def test_twice_in_one_process_is_refused_and_a_failed_try_takes_nothing_away(tmp_path: Path) -> None:
    lock = Lock(tmp_path / ".lock")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(HeldError, match=r"^this process$"):
        Lock(tmp_path / "link" / ".lock")
    code = f"from pathlib import Path; from ranktuner.lock import Lock; Lock(Path({str(tmp_path / '.lock')!r}))"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "HeldError: process" in refused.stderr
    lock.release()
    lock.release()
    Lock(tmp_path / ".lock").release()


def test_a_file_system_without_locks_is_written_to_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("ranktuner.lock.fcntl.lockf", none)
    Lock(tmp_path / ".lock").release()


def test_a_system_without_record_locks_is_written_to_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranktuner.lock.fcntl", None)
    lock = Lock(tmp_path / ".lock")
    with pytest.raises(HeldError, match=r"^this process$"):
        Lock(tmp_path / ".lock")
    lock.release()
