"""An attached model under transformers' Trainer, stock TRL (refused), our subclass of it, and a plain loop."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny as small
import torch
import transformers as tf
from datasets import Dataset
from head.families import batch, dense, gradients, tiny
from trl import SFTConfig
from trl import SFTTrainer as StockTrainer

import ranktuner as rt
from ranktuner.errors import MissingExtraError, UnsupportedError
from ranktuner.integrations.trl import SFTTrainer

ROWS = 8


def rows() -> list[dict[str, Any]]:
    data = batch(rows=ROWS)
    return [{k: v[i] for k, v in data.items()} for i in range(ROWS)]


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "max_steps": 2,
        "logging_steps": 1,
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 1e9,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        **changes,
    }


def by_hand(method: str) -> list[tuple[float, float]]:
    """Loss and gradient norm of the same two steps, from dense logits over the whole batch."""
    model, data = tiny("llama"), batch(rows=ROWS)
    count = int((data["labels"][:, 1:] != -100).sum())
    out = []
    for _ in range(2):
        loss = dense(model, data, method, count)
        loss.backward()
        parameters = dict(model.named_parameters())
        found = gradients(model)
        norm = torch.stack([g.square().sum() for g in found.values()]).sum().sqrt()
        with torch.no_grad():
            for name, gradient in found.items():
                parameters[name] -= 0.1 * gradient
        out.append((float(loss.detach()), float(norm)))
    return out


@pytest.mark.parametrize("method", ["ranktuner(prior=prob)", "eaft"])
def test_transformers_trainer_gives_the_numbers_of_one_dense_batch(tmp_path: Path, method: str) -> None:
    model = tiny("llama")
    with rt.attach(model, method):
        trainer = tf.Trainer(model, tf.TrainingArguments(**arguments(tmp_path)), train_dataset=rows())
        trainer.train()
    logged = [(line["loss"], line["grad_norm"]) for line in trainer.state.log_history if "loss" in line]
    for (loss, norm), (expected_loss, expected_norm) in zip(logged, by_hand(method), strict=True):
        assert loss == pytest.approx(expected_loss, rel=1e-4)
        assert norm == pytest.approx(expected_norm, rel=1e-4)


@pytest.mark.parametrize("change", [{"label_smoothing_factor": 0.1}])
def test_a_trainer_that_takes_the_labels_away(tmp_path: Path, change: dict[str, Any]) -> None:
    model = tiny("llama")
    with rt.attach(model, "dft"):
        trainer = tf.Trainer(model, tf.TrainingArguments(**arguments(tmp_path, **change)), train_dataset=rows())
        with pytest.raises(UnsupportedError, match="without labels while dft is attached"):
            trainer.train()


def test_a_trainer_with_its_own_loss_from_logits(tmp_path: Path) -> None:
    model = tiny("llama")
    with rt.attach(model, "dft"):
        trainer = tf.Trainer(
            model,
            tf.TrainingArguments(**arguments(tmp_path)),
            train_dataset=rows(),
            compute_loss_func=lambda outputs, labels, num_items_in_batch: outputs.logits.sum(),
        )
        with pytest.raises(UnsupportedError, match="no label smoothing, no compute_loss_func"):
            trainer.train()


def text_rows() -> Dataset:
    return Dataset.from_list(
        [{"prompt": f"What is {i}+{i}? ", "completion": f"It is {2 * i}." * (1 + i % 3)} for i in range(ROWS)]
    )


def trl_arguments(folder: Path, **changes: Any) -> SFTConfig:
    return SFTConfig(**arguments(folder, bf16=False, **changes))


def test_stock_trl_is_refused(tmp_path: Path) -> None:
    trainer = StockTrainer(
        small.model(), args=trl_arguments(tmp_path), train_dataset=text_rows(), processing_class=small.tokenizer()
    )
    with rt.attach(trainer.model, "dft"), pytest.raises(UnsupportedError, match="would be plain SFT; use ranktuner"):
        trainer.train()


def test_our_subclass_trains_sft_like_stock_trl_and_logs_the_method(tmp_path: Path) -> None:
    def run(kind: type, **more: Any) -> Any:
        args = trl_arguments(tmp_path, eval_strategy="steps", eval_steps=1)
        data = text_rows()
        tokens = small.tokenizer()
        trainer = kind(small.model(), args=args, train_dataset=data, eval_dataset=data, processing_class=tokens, **more)
        trainer.train()
        return trainer.state.log_history

    stock, ours, weighted = run(StockTrainer), run(SFTTrainer, method="sft"), run(SFTTrainer, method="dft")
    for name in ("loss", "grad_norm", "eval_loss"):
        expected = [line[name] for line in stock if name in line]
        assert [line[name] for line in ours if name in line] == pytest.approx(expected, rel=1e-4)
        assert len(expected) == 2
    assert all(line["effective_tokens"] == 1 for line in ours if "loss" in line)
    step = next(line for line in weighted if "loss" in line)
    assert 0 < step["weight_mean"] < 1
    assert step["nll"] == pytest.approx(next(line["loss"] for line in stock if "loss" in line), rel=1e-4)
    evaluation = next(line for line in weighted if "eval_nll" in line)
    assert evaluation["eval_nll"] > evaluation["eval_loss"] * 0.9


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"compute_loss_func": print}, "compute_loss_func= computes its own loss from logits"),
        ({"compute_metrics": print}, "compute_metrics= reads logits, which are never kept"),
    ],
)
def test_our_subclass_refuses_what_needs_logits(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        SFTTrainer(small.model(), args=trl_arguments(tmp_path), train_dataset=text_rows(), method="dft", **more)


@pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning")  # TRL's own
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_type": "dft"}, "loss_type='dft' beside method='ranktuner': give the method alone"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.1 needs logits; set it to 0"),
    ],
)
def test_our_subclass_refuses_settings_that_would_have_no_effect(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    args = trl_arguments(tmp_path, **change)
    with pytest.raises(UnsupportedError, match=message):
        SFTTrainer(small.model(), args=args, train_dataset=text_rows(), processing_class=small.tokenizer())


def test_without_trl_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.delitem(sys.modules, "ranktuner.integrations.trl")
    with pytest.raises(MissingExtraError, match=r"needs the package 'trl'.*pip install 'ranktuner\[train\]'"):
        importlib.import_module("ranktuner.integrations.trl")


def test_a_plain_loop_needs_nothing_but_the_count() -> None:
    model, data = tiny("llama"), batch(rows=4)
    count = int((data["labels"][:, 1:] != -100).sum())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with rt.attach(model, "ranktuner") as attachment:
        for _ in range(3):
            for half in (slice(0, 2), slice(2, 4)):
                model(**{k: v[half] for k, v in data.items()}, num_items_in_batch=count).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(rt.summarize(attachment.pop_metrics())["nll"])
    assert losses == sorted(losses, reverse=True)
