"""The head: signals and loss without logits, attached to any transformers causal language model in one line.

    with attach(model, "ranktuner(prior=prob)"):
        model(input_ids=..., labels=..., num_items_in_batch=n).loss.backward()

How it works. The forward of the output head's module instance is replaced; a forward pre-hook on the model arms it with
the labels. Inside the head's own forward is the one place where weights are there under every wrapping (FSDP2 gathers
them for exactly that call). In the logits' place the armed head returns a carrier: zeros [B, T, 1] whose first
element's backward delivers the gradients taken in the forward. What the model does to logits afterwards (softcap,
scale) meets zeros and cannot corrupt the value, which the model's `loss_function` then gives.

Legend: B sequences, T positions, N supervised tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ranktuner import anatomy
from ranktuner.armed import Scored
from ranktuner.attachment import MARK, Attachment
from ranktuner.fused import fused_weighted_loss
from ranktuner.registry import Method

__all__ = ["Attachment", "Scored", "attach", "fused_weighted_loss", "score"]


def attach(
    model: Any,
    weighting: str | Method,
    *,
    reduction: Literal["global", "local"] = "global",
    grad_budget: float = 0.0,
    chunk: int | None = None,
    implementation: str | None = None,
) -> Attachment:
    """Attach a method to a transformers causal language model: its loss becomes the weighted one, without logits.

    In training mode with labels, `outputs.loss` is sum(terms)/num_items_in_batch. In eval mode it is plain NLL and
    `logits` is None. Without labels the model is unchanged: generation and saving see the original.

    Args:
        model: also inside PEFT, DDP or torch.compile.
        weighting: a Method or its spec, such as `ranktuner(prior=prob)`.
        reduction: `global` wants `num_items_in_batch` with each training forward; `local` divides by the tokens of
            the micro-batch alone (then accumulation and several processes give another result: the caller's choice).
        grad_budget: share of the logit gradient's mass that may be left out of the backward products; 0 is exact.
        chunk: rows of logits at a time; chosen from the sizes by default.
        implementation: of the row pass: auto, plain, compiled or triton.

    Returns:
        The Attachment: a context manager with `pop_metrics()`, `last`, `step()`, `prime()` and `detach()`.
    """
    return Attachment(
        model,
        weighting,
        reduction=reduction,
        grad_budget=grad_budget,
        chunk=chunk,
        implementation=implementation,
    )


def score(model: Any, batch: Mapping[str, Any], *, needs: Iterable[str] | None = None) -> Scored:
    """Return the Signals of every supervised token of a batch, without gradient and without keeping logits.

    Args:
        model: a transformers causal language model, attached or not; scored in eval mode, left as it was.
        batch: what its forward takes; `labels` default to all tokens that attention_mask keeps.
        needs: extra signals, such as `expected_rank` or `topk_entropy:20`.
    """
    head = anatomy.find_head(anatomy.underlying(model))
    attached = getattr(head, MARK, None)
    if attached is not None:
        return attached.score(batch, needs)  # type: ignore[no-any-return]
    with Attachment(model, "sft", announce=False) as attachment:
        return attachment.score(batch, needs)
