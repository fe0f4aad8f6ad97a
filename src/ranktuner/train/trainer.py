"""The training loop's seams: our batches, our count, our telemetry and our checkpoints inside transformers' loop.

Loop, optimiser, schedule, mixed precision, DDP and FSDP2 are transformers' and accelerate's. What is overridden here
says why; everything else is theirs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ranktuner.errors import NonFiniteError
from ranktuner.integrations.trl import SFTTrainer
from ranktuner.train.card import write_card
from ranktuner.train.config import TrainConfig
from ranktuner.train.folder import STATE, RunFolder, saving, write_json
from ranktuner.train.launch import check_optimizer, check_sharding, on_main
from ranktuner.train.loader import ROWS, Layout, MicroBatches, held_out
from ranktuner.train.plan import Plan, Prepared
from ranktuner.train.steps import StepLog, any_process, joined, over_processes
from ranktuner.train.telemetry import Display, MetricsFile


@dataclass
class Job:
    """What the trainer needs to know beyond transformers' own arguments."""

    prepared: Prepared
    config: TrainConfig
    folder: RunFolder
    layout: Layout
    stop_requested: Callable[[], bool]
    """Whether a signal asked this process to save and stop."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.prepared.plan


class Trainer(SFTTrainer):
    """Our SFTTrainer with padding-free optimiser batches, exact telemetry and atomic checkpoints."""

    def __init__(self, *, job: Job, metrics: MetricsFile | None, display: Display, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.job, self._metrics_file, self._display = job, metrics, display
        self._log = StepLog()
        self._rows: list[list[str]] = []
        self._step_sums: dict[str, Tensor] | None = None
        self._norm = 0.0
        self._saving: Path | None = None
        self._told = 0
        self.stopped = False
        self.last_record: dict[str, Any] = {}
        self.active = ""

    # --- batches --------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> MicroBatches:
        """Our micro-batches, dealt to processes by length; accelerate would deal whole batches in file order."""
        plan, prepared = self.job.plan, self.job.prepared
        return MicroBatches(
            prepared.examples,
            units=prepared.units,
            size=plan.size,
            micro=plan.micro,
            steps=plan.steps,
            seed=self.job.config.seed,
            processes=self.args.world_size,
            rank=self.args.process_index,
            layout=self.job.layout,
            start=lambda: int(self.state.global_step),
        )

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        """Take the row ids out of the micro-batches of this step before the model sees them."""
        batches, count = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._rows = [batch.pop(ROWS) for batch in batches]
        self._step_sums = None
        self._prime(batches)
        return batches, count

    def _prime(self, batches: list[dict[str, Any]]) -> None:
        """Give a method that looks one step back its first value, from one pass without gradient."""
        context = self.attachment.method.context
        if context is None or context.ready:
            return
        means = []
        for batch in batches:
            signals = self._score(batch)
            means.append(context.sequence_means(signals.nll, signals.seq).double().cpu())
        context.advance(joined(torch.cat(means), self.args.world_size))

    def _score(self, batch: dict[str, Any]) -> Any:
        with self.accelerator.autocast():
            return self.attachment.score(self._prepare_inputs(dict(batch))).signals

    # --- the step -------------------------------------------------------------------------------------------------

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Say which rows were in the batch when something in it is not finite."""
        try:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        except NonFiniteError as error:
            raise NonFiniteError(self._blame(str(error))) from error
        return loss

    def _clip_grad_norm(self, model: Any) -> Any:
        """Divide by the batch's mean weight first where asked for: clipping must see the gradient that is used."""
        if self.job.config.optimizer.normalize_weights:
            sums = self._sums_of_step()
            mean = float(sums["weight_sum"]) / max(float(sums["tokens_sum"]), 1.0)
            for parameter in model.parameters():
                if parameter.grad is not None and mean > 0:
                    parameter.grad.div_(mean)
        return super()._clip_grad_norm(model)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Stop before the optimiser when the gradient is not finite: its norm is the same on every process."""
        norm = super()._get_grad_norm(model, grad_norm)
        self._sums_of_step()  # says which token was not finite, where the norm only says that one was
        self._norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        if not math.isfinite(self._norm):
            raise NonFiniteError(self._blame(f"the gradient's norm is {self._norm}"))
        return norm

    def _sums_of_step(self) -> dict[str, Tensor]:
        """Return this step's raw sums over micro-batches and processes; reduced once a step."""
        if self._step_sums is None:
            self._step_sums = over_processes(self.attachment.pop_metrics(), self.args.world_size)
            try:
                self.attachment.raise_if_nonfinite(bool(self._step_sums["nonfinite_sum"] > 0))
            except NonFiniteError as error:
                raise NonFiniteError(self._blame(str(error))) from error
        return self._step_sums

    def _blame(self, what: str) -> str:
        rows = [row for part in self._rows for row in part]
        last = self.job.folder.last_checkpoint()
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        shown = ", ".join(rows[:16]) + (f" and {len(rows) - 16} more" if len(rows) > 16 else "")
        return (
            f"step {self.state.global_step + 1}: {what}; rows of this batch: {shown}; {kept}. "
            "Look at these rows, lower --learning-rate, or train in fp32 (--dtype fp32)"
        )

    # --- after the step -------------------------------------------------------------------------------------------

    def _maybe_log_save_evaluate(
        self,
        tr_loss: Tensor,
        grad_norm: Any,
        model: Any,
        trial: Any,
        epoch: float,
        ignore_keys_for_eval: Any,
        start_time: float,
        learning_rate: float | None = None,
    ) -> None:
        """Log, evaluate and save our way; transformers calls this after every step, and once more at the end."""
        step = self.state.global_step
        if step == self._told:
            return
        self._told = step
        plan, telemetry = self.job.plan, self.job.config.telemetry
        context = self.attachment.method.context
        if context is not None:
            context.advance(joined(context.pending(), self.args.world_size))
        self._log.add(self._sums_of_step(), learning_rate or 0.0, self._norm, self.args.max_grad_norm)
        self.stopped = any_process(self.job.stop_requested(), self.args.world_size, self.args.device)
        last = step == plan.steps
        if last or self.stopped or step % telemetry.log_every == 0:
            self._tell(self._log.record(step))
        evaluate_every = telemetry.eval_every or plan.save_every
        with self._log.pause():
            if self.job.prepared.eval_examples is not None and (last or step % evaluate_every == 0):
                self._tell({"step": step, **self.evaluate()})
            if last or self.stopped or step % plan.save_every == 0:
                self._save_checkpoint(model, trial)
        self.control.should_training_stop |= self.stopped

    def _tell(self, record: dict[str, Any]) -> None:
        self.last_record = {**self.last_record, **record}
        if self._metrics_file is not None:
            with saving(f"{self.job.folder.metrics} (step {record['step']})", self.job.folder):
                self._metrics_file.write(record)
        self._display.update(record)
        self.log({name: value for name, value in record.items() if name != "step"})

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return the plain nll per supervised token of the held-out data, whatever the method, over all processes."""
        examples = self.job.prepared.eval_examples
        assert examples is not None
        total = torch.zeros(3, dtype=torch.float64)
        per_process = -(-len(examples) // self.args.world_size)
        micro, layout = self.job.plan.micro, self.job.layout
        batches = list(held_out(examples, micro, layout, self.args.world_size, self.args.process_index))
        # Sharded models need every process in every forward pass: one with fewer batches repeats one, uncounted.
        spare = batches[-1] if batches else next(held_out(examples, 1, layout, 1, 0))
        for at in range(-(-per_process // micro)):
            batch = dict(batches[at] if at < len(batches) else spare)
            batch.pop(ROWS)
            signals = self._score(batch)
            if at < len(batches):
                nll = signals.nll.double().sum().cpu()
                total += torch.stack([nll, torch.tensor(len(signals)).double(), signals.is_top.double().sum().cpu()])
        if self.args.world_size > 1:
            total = joined(total, self.args.world_size).reshape(-1, 3).sum(0)
        nll, tokens, top = (float(x) for x in total)
        return {"eval_nll": nll / max(tokens, 1), "eval_top1": top / max(tokens, 1), "eval_tokens": int(tokens)}

    # --- saving ---------------------------------------------------------------------------------------------------

    def _get_output_dir(self, trial: Any) -> str:
        """Send transformers' own save into the folder that is renamed when it is whole."""
        return str(self._saving) if self._saving is not None else str(super()._get_output_dir(trial))

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Leave the card to `card.py`: TRL's would describe another method."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint beside the others and give it its name when it is whole."""
        if self.job.config.sharding == "native":
            return
        step, folder = self.state.global_step, self.job.folder
        try:
            with saving(f"the checkpoint of step {step}", folder):
                if self._metrics_file is not None:
                    self._metrics_file.sync()
                self._saving = Path(on_main(lambda: str(folder.part())))
                super()._save_checkpoint(model, trial)
                written = self._saving / f"checkpoint-{step}"
                context = self.attachment.method.context
                state = {"log": self._log.state(), "method": context.state_dict() if context is not None else None}
                self._wait()
                if self.args.should_save:
                    write_json(written / STATE, {"step": step, **state})
                    folder.publish(written, step, self.job.config.checkpoint.keep)
                self._wait()
        finally:
            self._saving = None

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load our own state with theirs."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        state = json.loads((Path(checkpoint) / STATE).read_text(encoding="utf-8"))
        self._log.load_state(state["log"])
        self._told = state["step"]
        if state["method"] is not None and self.attachment.method.context is not None:
            self.attachment.method.context.load_state_dict(state["method"])

    def save_result(self) -> None:
        """Write the trained model, or the adapter, to OUTPUT/model: whole or not at all."""
        folder = self.job.folder
        if self.is_fsdp_enabled:
            self.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        part = folder.path / ".model.part"
        with saving("the trained model", folder):
            self.save_model(str(part), _internal_call=True)
            self._wait()
            if self.args.should_save:
                (part / "training_args.bin").unlink(missing_ok=True)
                write_card(part, self.job.config, self.job.plan, self.last_record)
                folder.publish_model(part)
            self._wait()

    def _wait(self) -> None:
        self.accelerator.wait_for_everyone()

    def _prepare_for_training(self, *arguments: Any) -> Any:
        """Look at what the processes really are before the first step, and say it."""
        prepared = super()._prepare_for_training(*arguments)
        kind = getattr(self.accelerator.distributed_type, "value", str(self.accelerator.distributed_type))
        layout = check_sharding(self.job.config, self.model_wrapped, kind)
        check_optimizer(self.model_wrapped, self.optimizer)
        self.active = f"{self.attachment}; {layout}"
        self._display.say(f"active   {self.active}")
        return prepared
