"""TRL 1.16: its SFTTrainer with a token weighting in place of its loss.

    from ranktuner.integrations.trl import SFTTrainer
    SFTTrainer(model, args=SFTConfig(...), train_dataset=data, method="ranktuner(prior=prob)").train()

Stock SFTTrainer computes the loss from lm_head.weight and calls neither the head nor the model's loss function, so an
attached model under it would be plain SFT; `compute_loss` is overridden instead, the route its maintainers support.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ranktuner.errors import UnsupportedError, missing_extra
from ranktuner.head import Attachment, attach
from ranktuner.loss import summarize
from ranktuner.registry import Method

try:
    import trl
except ImportError as error:
    raise missing_extra("trl", "train", "ranktuner.integrations.trl") from error

_UNSUPPORTED = {
    "compute_loss_func": "computes its own loss from logits",
    "compute_metrics": "reads logits, which are never kept",
    "preprocess_logits_for_metrics": "reads logits, which are never kept",
}


class SFTTrainer(trl.SFTTrainer):  # type: ignore[misc]
    """TRL's SFTTrainer, trained with a method; everything but the loss is theirs."""

    def __init__(
        self,
        *args: Any,
        method: str | Method = "ranktuner",
        grad_budget: float = 0.0,
        chunk: int | None = None,
        implementation: str | None = None,
        **kwargs: Any,
    ) -> None:
        for name, why in _UNSUPPORTED.items():
            if kwargs.get(name) is not None:
                raise UnsupportedError(f"{name}= {why}: it does not go with method={str(method)!r}; leave it out")
        super().__init__(*args, **kwargs)
        if self.args.loss_type not in ("nll", "chunked_nll"):
            raise UnsupportedError(f"loss_type={self.args.loss_type!r} beside method={method!r}: give the method alone")
        if self.args.label_smoothing_factor:
            raise UnsupportedError(
                f"label_smoothing_factor={self.args.label_smoothing_factor} needs logits; set it to 0"
            )
        self.attachment: Attachment = attach(
            self.model, method, grad_budget=grad_budget, chunk=chunk, implementation=implementation
        )

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the weighted loss of a micro-batch: sum(terms) / supervised tokens of the whole optimiser batch."""
        count = {} if num_items_in_batch is None else {"num_items_in_batch": num_items_in_batch}
        outputs = model(**{**inputs, "use_cache": False}, **count)
        loss: Tensor = outputs.loss
        # The one place where the engine's averaging is undone: DDP and FSDP divide gradients by the number of
        # processes, while the count is already that of all of them.
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the method's numbers since the last line: true sums over micro-batches and processes."""
        evaluation = any(name.startswith("eval") for name in logs)
        sums = self.attachment.pop_metrics(evaluation=evaluation)
        if sums:
            names = sorted(sums)
            adds = torch.stack([sums[n] for n in names if not n.endswith("_max")])
            largest = torch.stack([sums[n] for n in names if n.endswith("_max")])
            adds = self.accelerator.reduce(adds.to(self.accelerator.device), "sum")
            largest = self.accelerator.gather(largest.to(self.accelerator.device)[None]).amax(dim=0)
            total = dict(zip([n for n in names if not n.endswith("_max")], adds, strict=True))
            total |= zip([n for n in names if n.endswith("_max")], largest, strict=True)
            self.attachment.raise_if_nonfinite(bool(total["nonfinite_sum"] > 0))
            line = summarize(total)
            if evaluation:
                logs["eval_nll"], logs["eval_top1"] = line["nll"], line["top1"]
            else:
                logs |= {name: value for name, value in line.items() if name not in ("loss", "tokens")}
        super().log(logs, *args, **kwargs)
