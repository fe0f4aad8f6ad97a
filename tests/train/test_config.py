"""The configuration: sources, precedence, and what is wrong by its message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ranktuner.errors import InputError
from ranktuner.train.config import FLAGS, TrainConfig, changed, known_keys, make_config, read_config

ASKED = {"model": "m", "data": "d.jsonl"}


def test_defaults_are_the_papers() -> None:
    config = read_config(flags=ASKED)
    o, b = config.optimizer, config.batch
    assert (o.learning_rate, o.schedule, o.warmup_ratio) == (5e-5, "cosine", 0.1)
    assert (b.size, config.data.max_length, config.lora.rank) == (256, 2048, 0)
    # what the paper leaves out is the official DFT recipe's
    assert (o.epochs, o.max_grad_norm, o.weight_decay, o.beta1, o.beta2) == (1.0, 1.0, 0.01, 0.9, 0.95)


def test_flags_win_over_the_file_and_sets_over_flags(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('method = "dft"\nseed = 3\n[optimizer]\nlearning_rate = 1e-5\nepochs = 2\n[batch]\nsize = 64\n')
    config = read_config(file, {**ASKED, "learning_rate": 2e-5, "epochs": None}, ["batch.size=32", "method=sft"])
    assert (config.optimizer.learning_rate, config.optimizer.epochs) == (2e-5, 2)
    assert (config.batch.size, config.method, config.seed) == (32, "sft", 3)


def test_every_flag_stands_for_a_setting_and_every_setting_names_its_origin() -> None:
    assert set(FLAGS.values()) <= set(known_keys())
    for key in known_keys():
        schema: type = TrainConfig
        *sections, name = key.split(".")
        for section in sections:
            schema = schema.model_fields[section].annotation
        text = schema.model_fields[name].description
        assert text, f"{key} has no docstring"
        if key not in ("model.path", "data.source"):
            assert any(origin in text for origin in ("(paper", "(DFT)", "(ours)")), f"{key}: whose default is it?"


WRONG = {
    "nothing": ({}, [], "model.path is missing; give --model FOLDER"),
    "no data": ({"model": "m"}, [], "data.source is missing; give --data FILE"),
    "misspelt": (ASKED, ["optimizer.learningrate=1"], "unknown setting 'optimizer.learningrate'; did you mean 'optim"),
    "misspelt section": (ASKED, ["optimiser.epochs=1"], "unknown setting 'optimiser'; did you mean 'optimizer'"),
    "wrong place": (
        ASKED,
        ["learning_rate=1"],
        "unknown setting 'learning_rate'; did you mean 'optimizer",
    ),
    "not a number": (ASKED, ["optimizer.learning_rate=fast"], "optimizer.learning_rate is 'fast'; input should be a v"),
    "out of range": (ASKED, ["optimizer.warmup_ratio=2"], "optimizer.warmup_ratio is 2; input should be less than"),
    "no equals": (ASKED, ["seed"], "--set 'seed': expected section.key=value"),
    "value as section": (ASKED, ["seed.x=1", "seed=1", "seed.x=1"], "'seed' is a value, not a section"),
    "indivisible": ({**ASKED, "global_batch": 10, "micro_batch": 4}, [], "batch.size=10 is no multiple .* 8, 12"),
    "qlora without rank": (ASKED, ["lora.quantize=true"], "give the adapters a rank: --lora 16"),
    "adapter settings without adapters": (ASKED, ["lora.alpha=8"], "lora.alpha has no effect without .*: --lora 16"),
    "qlora in fp32": ({**ASKED, "lora": 4, "dtype": "fp32"}, ["lora.quantize=true"], "set model.dtype to bf16"),
    "half of a pair": (ASKED, ["data.prompt_field=a"], "data.prompt_field and data.response_field go together"),
    "eval without data": (ASKED, ["telemetry.eval_every=5"], "telemetry.eval_every needs data"),
    "native saves": (ASKED, ["sharding=native", "checkpoint.every=5"], "sharding=native cannot save its optimiser"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    flags, sets, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        read_config(flags=flags, sets=sets)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such configuration file"):
        read_config(tmp_path / "absent.toml", ASKED)
    (tmp_path / "bad.toml").write_text("method = dft\n")
    with pytest.raises(InputError, match=r"bad\.toml: not valid TOML .* texts need quotes"):
        read_config(tmp_path / "bad.toml", ASKED)


def test_differences_are_named_by_setting() -> None:
    a = make_config({"model": {"path": "m"}, "data": {"source": "d"}}).model_dump(mode="json")
    b = make_config({"model": {"path": "m"}, "data": {"source": "d"}, "seed": 1, "lora": {"rank": 4}}).model_dump()
    assert changed(a, b) == ["lora.rank: 0 -> 4", "seed: 0 -> 1"]


def test_schema_and_help_load_no_torch() -> None:
    code = (
        "import sys; from ranktuner.cli import main; import ranktuner.train.config; import ranktuner.train; "
        "main(['train', '--help']); sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for flag in FLAGS:
        assert f"--{flag.replace('_', '-')}" in done.stdout
