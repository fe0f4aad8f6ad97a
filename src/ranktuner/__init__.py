"""RankTuner: fine-tune language models with token weights that calibrate probability by entropy.

The public names below load their module, and torch with it, only when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktuner import bounds as bounds
    from ranktuner import compare as compare
    from ranktuner import methods as methods
    from ranktuner import train as train
    from ranktuner.evals.passk import pass_at_k as pass_at_k
    from ranktuner.evals.passk import pooled_pass_at_k as pooled_pass_at_k
    from ranktuner.head import Attachment as Attachment
    from ranktuner.head import Scored as Scored
    from ranktuner.head import attach as attach
    from ranktuner.head import fused_weighted_loss as fused_weighted_loss
    from ranktuner.head import score as score
    from ranktuner.kernels import signals_from_hidden as signals_from_hidden
    from ranktuner.loss import LossOutput as LossOutput
    from ranktuner.loss import dense_loss as dense_loss
    from ranktuner.loss import summarize as summarize
    from ranktuner.loss import weighted_loss as weighted_loss
    from ranktuner.registry import Method as Method
    from ranktuner.registry import method as method
    from ranktuner.registry import weighting as weighting
    from ranktuner.signals import RowTerms as RowTerms
    from ranktuner.signals import Signals as Signals
    from ranktuner.signals import expected_rank as expected_rank
    from ranktuner.signals import signals_from_logits as signals_from_logits

_PUBLIC = {
    "Signals": "ranktuner.signals",
    "RowTerms": "ranktuner.signals",
    "signals_from_logits": "ranktuner.signals",
    "expected_rank": "ranktuner.signals",
    "Method": "ranktuner.registry",
    "method": "ranktuner.registry",
    "weighting": "ranktuner.registry",
    "LossOutput": "ranktuner.loss",
    "weighted_loss": "ranktuner.loss",
    "dense_loss": "ranktuner.loss",
    "summarize": "ranktuner.loss",
    "methods": "ranktuner.methods",
    "signals_from_hidden": "ranktuner.kernels",
    "attach": "ranktuner.head",
    "score": "ranktuner.head",
    "fused_weighted_loss": "ranktuner.head",
    "Attachment": "ranktuner.head",
    "Scored": "ranktuner.head",
    "pass_at_k": "ranktuner.evals.passk",
    "pooled_pass_at_k": "ranktuner.evals.passk",
    "bounds": "ranktuner.bounds",
    "train": "ranktuner.train",
    "compare": "ranktuner.compare",
}
"""Public name -> module; a name equal to its module's last part is the module itself."""

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ranktuner' has no attribute {name!r}")
    module = import_module(_PUBLIC[name])
    return module if _PUBLIC[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
