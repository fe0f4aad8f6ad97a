"""Fingerprints: which model wrote a sample, by content, so that two models in one folder's place are told apart."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_SUFFIXES = {".safetensors", ".bin", ".json", ".jinja", ".model", ".txt", ".gguf", ".tiktoken"}
_NOT_THE_MODEL = {"trainer_state.json", "generation_config.json", "training_args.bin", "README.md"}


def fingerprint_of(model: str, loaded: Any = None) -> str:
    """Return a short name of the model's content.

    A folder: a digest of all weights, config, tokenizer and template files (an adapter's folder also of the base
    model's), wherever the folder is. A hub id: the id and the commit that was loaded.

    Args:
        model: folder or hub id, as the user gave it.
        loaded: the loaded model, which knows the commit of a hub id.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        commit = getattr(getattr(loaded, "config", None), "_commit_hash", None)
        return f"{model}@{commit or 'unknown'}"
    return f"sha256:{digest_of(folder)}"


def digest_of(folder: Path) -> str:
    """Return a digest of the files that make a model folder what it is."""
    files = sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.name not in _NOT_THE_MODEL)
    with ThreadPoolExecutor(4) as pool:  # hashing lets other threads run, and shards are many
        digests = list(pool.map(_file_digest, files))
    text = "".join(f"{path.name}={digest}\n" for path, digest in zip(files, digests, strict=True))
    adapter = folder / "adapter_config.json"
    if adapter.exists():
        base = json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path") or ""
        text += f"base={fingerprint_of(base)}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
