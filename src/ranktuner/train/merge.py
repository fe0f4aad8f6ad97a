"""An adapter and its base model -> one model folder that any server loads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ranktuner.errors import InputError, missing_extra
from ranktuner.train.folder import MODEL, RUN, sync
from ranktuner.train.launch import quiet_libraries

DTYPES = ("auto", "fp32", "bf16", "fp16")


def merge(run: str | Path, output: str | Path | None = None, dtype: str = "auto", base: str | None = None) -> Path:
    """Merge the adapter of a run into its base model and save the whole, with tokenizer and card.

    Args:
        run: a run's folder, or an adapter's own folder.
        output: where to; default `merged` beside the adapter.
        dtype: of the saved weights: auto keeps the base model's.
        base: the base model, where it has moved since the run.

    Returns:
        The model folder.
    """
    adapter = _adapter(Path(run).expanduser())
    target = Path(output).expanduser() if output else adapter.parent / "merged"
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}: expected one of {', '.join(DTYPES)}")
    if target.exists() and any(target.iterdir()):
        raise InputError(f"{target}: the folder is not empty; choose another --output")
    try:
        from peft import PeftConfig, PeftModel
    except ImportError as error:
        raise missing_extra("peft", "train", "Merging an adapter") from error
    quiet_libraries()
    base = base or PeftConfig.from_pretrained(str(adapter)).base_model_name_or_path
    model = PeftModel.from_pretrained(_base(base, dtype), str(adapter)).merge_and_unload(safe_merge=True)
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    _tokenizer(adapter, base).save_pretrained(part)
    _card(adapter, part)
    sync(part)
    if target.exists():
        target.rmdir()
    part.rename(target)
    return target


def _adapter(run: Path) -> Path:
    for folder in (run, run / MODEL):
        if (folder / "adapter_config.json").exists():
            return folder
    if (run / MODEL / "config.json").exists():
        raise InputError(f"{run}: this run trained all weights, so there is nothing to merge: use {run / MODEL}")
    if (run / RUN).exists():
        raise InputError(f"{run}: this run has no result yet; finish it with ranktuner train --resume")
    raise InputError(f"{run}: neither a run of ours nor an adapter (no adapter_config.json)")


def _base(base: str | None, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    if not base:
        raise InputError("the adapter does not name its base model; give it: --base FOLDER")
    if base.startswith("/") and not Path(base).exists():
        raise InputError(f"the base model {base} is not there any more; say where it is: --base FOLDER")
    chosen = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, "auto")
    return AutoModelForCausalLM.from_pretrained(base, dtype=chosen)


def _tokenizer(adapter: Path, base: str | None) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(adapter if (adapter / "tokenizer_config.json").exists() else base)


def _card(adapter: Path, target: Path) -> None:
    card = adapter / "README.md"
    if card.exists():
        text = card.read_text(encoding="utf-8").replace("library_name: peft", "library_name: transformers")
        (target / "README.md").write_text(
            text + "\nThe adapter is merged into the base model's weights.\n", encoding="utf-8"
        )
