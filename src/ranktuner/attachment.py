"""An Attachment: a method on a model's output head, by a replaced head forward and two hooks.

The forward of the output head's module instance is replaced; a forward pre-hook on the model arms it with the labels.
Inside the head's own forward is the one place where weights are there under every wrapping (FSDP2 gathers them for
exactly that call). In the logits' place the armed head returns a carrier: zeros [B, T, 1] whose first element's
backward delivers the gradients taken in the forward. What the model does to logits afterwards (softcap, scale) meets
zeros and cannot corrupt the value, which the model's `loss_function` then gives.

Legend: B sequences, T positions, N supervised tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ranktuner import anatomy
from ranktuner.align import Aligned, supervised
from ranktuner.armed import Armed, Batch, NoLogits, Scored, all_tokens, sequence_numbers, weights_of
from ranktuner.errors import InputError, NonFiniteError, UnsupportedError
from ranktuner.fused import Done, check_finite, fused
from ranktuner.kernels import Head
from ranktuner.loss import Metrics, add_metrics
from ranktuner.registry import Method, method

log = logging.getLogger("ranktuner")
MARK = "_ranktuner_attachment"


@dataclass
class _Sums:
    parts: list[Metrics] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


class Attachment:
    """A method attached to a model; a context manager. `detach` leaves the model bit for bit as it was."""

    def __init__(
        self,
        model: Any,
        weighting: str | Method,
        *,
        reduction: Literal["global", "local"] = "global",
        grad_budget: float = 0.0,
        chunk: int | None = None,
        implementation: str | None = None,
        announce: bool = True,
    ) -> None:
        self.method = method(weighting)
        if self.method.parameters.get("mode") == "mix":
            self.method.function(None, **self.method.parameters)  # refuses by name
        if reduction not in ("global", "local"):
            raise InputError(
                f"reduction is {reduction!r}; 'global' (told the count) or 'local' (this batch) was expected"
            )
        self.reduction = reduction
        self.last: Batch | None = None
        self._how = {"chunk": chunk, "grad_budget": grad_budget, "implementation": implementation}
        self._base = anatomy.underlying(model)
        self._head = anatomy.find_head(self._base)
        if hasattr(self._head, MARK):
            raise UnsupportedError(
                f"{getattr(self._head, MARK)} is attached to this model already; detach() it first, or reuse it"
            )
        config = self._base.config.get_text_config() if hasattr(self._base, "config") else None
        self._softcap, self._scale = anatomy.softcap_of(config), anatomy.scale_of(config)
        self._armed: Armed | None = None
        self._sums = {True: _Sums(), False: _Sums()}
        self._checked = False
        self._scoring: Method | None = None
        self._install()
        if announce:
            log.info("%s", self)

    def __str__(self) -> str:
        weight = getattr(getattr(self._head, "base_layer", self._head), "weight", None)
        shape = "x".join(map(str, weight.shape)) if isinstance(weight, Tensor) else "?"
        back = "recomputed in the backward" if self.method.scope == "batch" else "taken in the forward"
        budget = self._how["grad_budget"]
        note = f", gradient budget {budget:g}" if budget else ""
        return f"{self.method} on the head of {type(self._base).__name__} ({shape}), gradient {back}{note}"

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _install(self) -> None:
        head, base = self._head, self._base
        self._had_forward = head.__dict__.get("forward")
        self._own_forward = head.forward
        head.forward = _eager(self._head_forward)
        setattr(head, MARK, self)
        self._had_loss = base.__dict__.get("_loss_function")
        self._own_loss = base.loss_function
        base.loss_function = _eager(self._loss_function)
        self._hooks = [
            base.register_forward_pre_hook(_eager(self._arm), with_kwargs=True),
            base.register_forward_hook(_eager(self._disarm), always_call=True),
        ]

    def detach(self) -> None:
        """Take everything off again; a second call does nothing."""
        if not hasattr(self._head, MARK):
            return
        for hook in self._hooks:
            hook.remove()
        _put_back(self._head, "forward", self._had_forward)
        _put_back(self._base, "_loss_function", self._had_loss)
        delattr(self._head, MARK)

    # -- what a caller reads --

    def pop_metrics(self, *, evaluation: bool = False) -> Metrics:
        """Return the raw sums of all training (or evaluation) forwards since the last call; empty if there were none.

        With several processes, add them up (`_sum` adds, `_max` takes the largest) before `loss.summarize`;
        `nonfinite_sum` above 0 then means that `raise_if_nonfinite` must be called on every process.
        """
        sums = self._sums[not evaluation]
        total = add_metrics(sums.parts)
        sums.parts.clear()
        return total

    def raise_if_nonfinite(self, anywhere: bool | None = None) -> None:
        """Raise if a token seen since the last call was not finite: here, or `anywhere` (agreed over processes)."""
        batches = [b for s in self._sums.values() for b in s.batches]
        for sums in self._sums.values():
            sums.batches.clear()
        for batch in batches:
            _check(batch)
        if anywhere:
            raise NonFiniteError("a token's signals were not finite on another process; its message says which token")

    def step(self) -> None:
        """Say that an optimiser step is over; needed by methods with a state over steps (talr), harmless for others."""
        if self.method.context is not None:
            self.method.context.advance()

    def prime(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """Give a method with a state its first value, from one pass without gradient over a step's batches."""
        context = self.method.context
        if context is None:
            return
        for batch in batches:
            scored = self.score(batch)
            context.collect(scored.signals.nll, scored.signals.seq)
        context.advance()

    def score(self, batch: Mapping[str, Any], needs: Iterable[str] | None = None) -> Scored:
        """Return the signals of a batch: `score` on an attached model."""
        inputs = {k: v for k, v in batch.items() if k not in ("num_items_in_batch", "token_weights")}
        if inputs.get("labels") is None:
            inputs["labels"] = all_tokens(inputs["input_ids"], inputs.get("attention_mask"))
        modes = {module: module.training for module in self._base.modules()}
        self._scoring = _scoring(needs)
        try:
            self._base.eval()
            with torch.no_grad():
                self._base(**inputs)
        finally:
            self._scoring = None
            for module, training in modes.items():
                module.training = training
        self._sums[False].parts.pop()
        self._sums[False].batches.clear()
        assert self.last is not None
        _check(self.last)
        return Scored(self.last.signals, self.last.aligned.row, self.last.aligned.position)

    # -- the hooks --

    def _arm(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._armed = None
        if kwargs.get("fused_lm_head"):
            raise UnsupportedError(
                "TRL's own SFTTrainer computes its loss from lm_head.weight and calls neither the head nor "
                f"loss_function: {self.method} would be plain SFT; use ranktuner.integrations.trl.SFTTrainer in its "
                "place"
            )
        labels, shifted = kwargs.get("labels"), kwargs.get("shift_labels")
        weights = kwargs.pop("token_weights", None)
        if labels is None and shifted is None:
            if module.training and torch.is_grad_enabled():
                raise UnsupportedError(
                    f"a training forward without labels while {self.method} is attached: its loss would be computed "
                    "elsewhere, without the weighting. Pass labels to the model (no label smoothing, no "
                    "compute_loss_func), or detach() first; for generation use torch.no_grad()"
                )
            return args, kwargs
        count = kwargs.get("num_items_in_batch")
        if module.training and torch.is_grad_enabled() and count is None and self.reduction == "global":
            raise UnsupportedError(
                "a training forward was not told how many supervised tokens the whole optimiser batch has: pass "
                "num_items_in_batch (transformers' Trainer does), or attach(..., reduction='local') for the mean over "
                "each micro-batch alone"
            )
        kwargs["labels"] = shifted if labels is None else labels
        self._armed = Armed(
            labels=kwargs["labels"] if shifted is None else shifted,
            shifted=shifted is not None,
            position_ids=kwargs.get("position_ids"),
            seq_idx=sequence_numbers(kwargs, kwargs["labels"]),
            weights=weights,
            count=count if self.reduction == "global" or not module.training else None,
            chosen=self.method if module.training else (self._scoring or method("sft")),
            training=module.training,
            keep=self._scoring is not None,
        )
        return args, kwargs

    def _head_forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        armed = self._armed
        if armed is None:
            return self._own_forward(hidden, *args, **kwargs)  # type: ignore[no-any-return]
        if armed.value is not None:
            raise UnsupportedError(
                f"{type(self._base).__name__} calls its output head more than once in a forward; one call was "
                "expected: use fused_weighted_loss on its hidden states"
            )
        head = anatomy.read_head(self._head, self._softcap, self._scale)
        self._check_shapes(hidden, armed, head)
        aligned = supervised(
            armed.labels,
            position_ids=armed.position_ids,
            seq_idx=armed.seq_idx,
            shifted=armed.shifted,
            vocab_size=head.vocab_size,
        )
        first = not self._checked
        if first:
            self._compare(hidden, head)
        weight = None if armed.weights is None else weights_of(armed, aligned)
        how = self._how if armed.training else {**self._how, "grad_budget": 0.0}
        rows = aligned.rows(hidden)
        done = fused(rows, head, aligned.target, armed.chosen, aligned.seq, weight, armed.count, how)
        self._record(done, aligned, armed)
        armed.value = done.loss.detach()
        # only the training loss has a way back: an evaluation's plain nll must not be trained on by mistake
        path = done.loss - done.loss.detach() if armed.training else armed.value * 0
        size = hidden.shape[0] * hidden.shape[1]
        carrier = nn.functional.pad(path.reshape(1), (0, size - 1))
        if first and size > 1:
            armed.probe = torch.linspace(-40, 40, size - 1, device=hidden.device)
            carrier = carrier + nn.functional.pad(armed.probe, (1, 0))
        return carrier.reshape(hidden.shape[0], hidden.shape[1], 1)

    def _loss_function(self, logits: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        armed = self._armed
        if armed is None or armed.value is None:
            return self._own_loss(logits, labels, *args, **kwargs)  # type: ignore[no-any-return]
        armed.answered = True
        carried = logits.reshape(-1)
        if armed.probe is not None:
            name = type(self._base).__name__
            anatomy.check_same_ending(carried[1:].detach(), armed.probe, self._softcap, self._scale, name)
        self._checked = True
        # the softcap has slope 1 at zero; a scale on the logits is a factor on the way back too
        return armed.value + carried[0] / self._scale

    def _disarm(self, module: nn.Module, args: Any, output: Any) -> None:
        armed, self._armed = self._armed, None
        if armed is None or output is None:  # None: the forward raised, and its own error is the one to see
            return
        if armed.value is None or not armed.answered:
            missing = "its output head" if armed.value is None else "loss_function"
            raise UnsupportedError(
                f"{type(module).__name__} was given labels but did not call {missing}, so {self.method} had no effect: "
                "its forward computes the loss elsewhere; use fused_weighted_loss on its hidden states"
            )
        if getattr(output, "logits", None) is not None:
            output.logits = NoLogits() if armed.training and torch.is_grad_enabled() else None

    # -- parts of the head's forward --

    def _check_shapes(self, hidden: Tensor, armed: Armed, head: Head) -> None:
        if hidden.ndim != 3 or hidden.shape[-1] != head.weight.shape[1]:
            raise InputError(
                f"hidden states of shape {tuple(hidden.shape)} reach a head of {tuple(head.weight.shape)}; [B, T, "
                f"{head.weight.shape[1]}] was expected"
            )
        if hidden.shape[:2] != armed.labels.shape:
            raise UnsupportedError(
                f"labels of shape {tuple(armed.labels.shape)} meet hidden states of {tuple(hidden.shape[:2])}: a "
                "trainer that slices with logits_to_keep must not, and sequence-parallel labels must be shifted before "
                "they are sharded and passed as shift_labels"
            )

    def _compare(self, hidden: Tensor, head: Head) -> None:
        """Hold the product computed here against the head's own output, for a few tokens."""
        with torch.no_grad():
            few = hidden[:1, :8]
            own = self._own_forward(few).reshape(-1, head.vocab_size)
            cast = head.cast(own.dtype)
            plain = Head(cast.weight, cast.bias)
            with torch.autocast(hidden.device.type, enabled=False):
                ours = plain.logits(few.reshape(-1, hidden.shape[-1]).to(own.dtype), torch.empty_like(own))
        if bool(torch.isfinite(few).all()):
            anatomy.check_same_logits(own, ours, type(self._base).__name__)

    def _record(self, done: Done, aligned: Aligned, armed: Armed) -> None:
        done.metrics["nonfinite_sum"] = (~torch.isfinite(done.signals.nll)).sum().double()
        sums = self._sums[armed.training]
        sums.parts.append(done.metrics)
        self.last = Batch(done.signals, aligned)
        if armed.training and torch.is_grad_enabled() and self.method.context is not None and len(aligned):
            self.method.context.collect(done.signals.nll, done.signals.seq)
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if done.signals.nll.device.type == "cpu" and not several:
            if not armed.keep:
                _check(self.last)
        else:  # looked at later: asking now would stall the device, and raising alone would hang the other processes
            sums.batches.append(self.last)


def _check(batch: Batch) -> None:
    aligned = batch.aligned
    check_finite(batch.signals, lambda i: f"sequence {int(aligned.row[i])}, position {int(aligned.position[i])}")


def _scoring(needs: Iterable[str] | None) -> Method:
    """Plain nll that asks for other signals besides."""
    plain, wanted = method("sft"), list(needs or ())
    return replace(plain, card=replace(plain.card, needs=lambda parameters: wanted))


def _eager(function: Any) -> Any:
    """Keep torch.compile out of a hook: it acts on the Attachment, and its kernels are compiled apart."""
    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]


def _put_back(module: nn.Module, name: str, before: Any) -> None:
    if before is None:
        module.__dict__.pop(name, None)
    else:
        module.__dict__[name] = before
