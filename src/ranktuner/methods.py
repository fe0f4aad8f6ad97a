"""The methods: each turns Signals into a weight for every token's nll. One small pure function each, and their table.

A method is a function of Signals with keyword-only parameters; its annotations say which values they take. It returns
weights [N], or RowTerms where it needs more than a weight. Weights are computed from detached signals: they carry no
gradient. `ranktuner methods NAME` prints what is written here.

Weights are exponentials of one sum, and saturate at e^64 (`LN_WEIGHT_MAX`) so that nothing overflows in fp32 where a
label has nll 1e4; `cap=` sets a lower ceiling.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ranktuner import bounds
from ranktuner.bounds import LN2, Drop, ElasticityKind, FKind, GKind, XiKind
from ranktuner.errors import UnsupportedError
from ranktuner.lagged import Lagged
from ranktuner.signals import RowTerms, Signals
from ranktuner.spec import Range

LN_WEIGHT_MAX = 64.0
Prior = Literal["uniform", "prob"]
Positive = Annotated[float, Range(0, open_low=True)]
NotTiny = Annotated[float, Range(1e-6)]
"""A divisor that stays one in fp32."""
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
WeightFunction = Callable[..., Tensor | RowTerms]


@dataclass(frozen=True)
class Card:
    """What is known about a method besides its code."""

    formula: str
    """The weight, then after a semicolon what its letters mean."""
    reads: str
    paper: str
    when: str
    confirmed: str
    """Where the formula was checked; says so where it was not, and where the original does more."""
    needs: Callable[[dict[str, Any]], list[str]] = field(default=lambda parameters: [])
    """Extra signals, from the parameters."""
    batch: Callable[[dict[str, Any]], bool] = field(default=lambda parameters: False)
    """Whether a token's weight depends on the other tokens of the micro-batch."""


TABLE: dict[str, tuple[WeightFunction, Card]] = {}
"""Name -> (function, card), in the order of `ranktuner methods`."""


def _register(name: str, **card: Any) -> Callable[[WeightFunction], WeightFunction]:
    def add(function: WeightFunction) -> WeightFunction:
        TABLE[name] = (function, Card(**card))
        return function

    return add


def _exp(log_weight: Tensor, cap: float | None = None) -> Tensor:
    ceiling = LN_WEIGHT_MAX if cap is None else min(math.log(cap), LN_WEIGHT_MAX)
    return torch.exp(log_weight.clamp_max(ceiling))


# --- the paper's set --------------------------------------------------------------------------------------------


@_register(
    "sft", formula="1", reads="-", paper="-", when="the baseline: plain cross-entropy", confirmed="definition"
)  # fmt: skip
def sft(s: Signals) -> Tensor:
    """Every token counts the same."""
    return torch.ones_like(s.nll)


@_register(
    "dft",
    formula="p",
    reads="p",
    paper="Dynamic Fine-Tuning, arXiv 2508.05629",
    when="mathematics with a model that already knows the domain; ignores what it finds unlikely",
    confirmed="official code, yongliang-wu/DFT",
)
def dft(s: Signals) -> Tensor:
    """Probability of the label."""
    return s.p


@_register(
    "eaft",
    formula="(H_topk / scale)^alpha; H_topk in nats over the renormalised top k, scale 3 for k = 20, else ln k",
    reads="top-k entropy",
    paper="Entropy-Adaptive Fine-Tuning, arXiv 2601.02151",
    when="keep what the model is sure of, learn where it is open",
    confirmed="official code, ymxyll/LlamaFactory-EAFT, for k = 20; the scale of another k is ours",
    needs=lambda p: [f"topk_entropy:{p['k']}"],
)
def eaft(s: Signals, *, k: Annotated[int, Range(2)] = 20, alpha: NotNegative = 1.0) -> Tensor:
    """Entropy of the k most likely tokens, over its usual maximum."""
    assert s.topk_entropy is not None
    return (s.topk_entropy / (3.0 if k == 20 else math.log(k))) ** alpha


@_register(
    "talr",
    formula="max(p^(1/tau), floor); tau = median over sequences of their mean nll",
    reads="p, sequence means",
    paper="Token-Adaptive Loss Reweighting, arXiv 2509.20758",
    when="domain adaptation that should forget little",
    batch=lambda p: p["tau"] == "micro-batch",
    confirmed="paper; its code is not public, and the reach of 'batch' is ours: the previous optimiser step",
)
def talr(
    s: Signals,
    *,
    floor: Share = 0.01,
    tau: Literal["lagged", "micro-batch"] | NotTiny = "lagged",
    _context: Lagged | None = None,
) -> Tensor:
    """Probability flattened by how hard the data is, above a floor."""
    if tau == "lagged":
        assert _context is not None
        value: float | Tensor = _context.value()
    elif tau == "micro-batch":
        value = Lagged.median(Lagged.sequence_means(s.nll, s.seq))
    else:
        value = float(tau)
    return torch.exp(-s.nll / value).clamp_min(floor)


@_register(
    "overtone",
    formula="1 - (1-lam) 1[is_top]; mode=mix: cross-entropy to lam onehot + (1-lam) filtered prediction",
    reads="is_top",
    paper="OverTone, arXiv 2502.00602",
    when="stop pushing tokens that already lead",
    confirmed="gate: as the RankTuner paper writes it; mix: its filter and skip rule are our reading",
)
def overtone(s: Signals, *, lam: Share = 0.1, mode: Literal["gate", "mix"] = "gate") -> Tensor:
    """Tokens whose label already leads keep the share lam."""
    if mode == "mix":
        raise UnsupportedError(
            "overtone(mode=mix) needs the whole predicted distribution and exists on the dense path only: call "
            "ranktuner.loss.dense_loss(logits, target, ...), or use overtone(mode=gate)"
        )
    return 1 - (1 - lam) * s.is_top.to(s.nll.dtype)


@_register(
    "ranktuner",
    formula="w0 (p s)^-K; s = 2^H/4+1 if H >= 2 bits else 2-p_max, K = log2(xi+1)^-2, xi = max(R, s); "
    "w0 = 1 (prior=uniform) or p (prior=prob)",
    reads="p, R, H, p_max",
    paper="Probability-Entropy Calibration, arXiv 2602.01745",
    when="general data and code with prior=uniform; mathematics, where the model is already strong, with prior=prob",
    confirmed="paper; its code could not be read",
)
def ranktuner(
    s: Signals,
    *,
    prior: Prior = "uniform",
    xi: XiKind = "max",
    k: ElasticityKind | NotNegative = "dynamic",
    drop: Drop = "none",
    cap: Positive | None = None,
) -> Tensor:
    """Probability calibrated by entropy: the relative rank, raised by its own elasticity."""
    bound = bounds.rank_bound(s.entropy_bits, s.p_max)
    elasticity = bounds.elasticity(bounds.xi(s.rank, bound, xi), k)
    log_weight = bounds.log_scale(s.nll, bound, elasticity, drop)
    return _exp(log_weight - s.nll if prior == "prob" else log_weight, cap)


@_register(
    "relative-rank",
    formula="w0 / I; I = g(f(1/p) - f(s(H)))",
    reads="p, H, p_max",
    paper="Probability-Entropy Calibration, arXiv 2602.01745, (f, g) table",
    when="ablation: the indicator itself in place of its elastic approximation",
    confirmed="paper; its code could not be read",
)
def relative_rank(
    s: Signals, *, f: FKind = "inv-log", g: GKind = "exp2", prior: Prior = "uniform", cap: Positive | None = None
) -> Tensor:
    """Inverse of the surrogate indicator."""
    log_weight = -bounds.log_surrogate_indicator(s.nll, bounds.rank_bound(s.entropy_bits, s.p_max), f, g)
    return _exp(log_weight - s.nll if prior == "prob" else log_weight, cap)


@_register(
    "alpha-power",
    formula="p^alpha; reports (1 - p^alpha)/alpha, whose gradient it is",
    reads="p",
    paper="Beyond Log Likelihood, arXiv 2510.00526 (GeneralFamily-q)",
    when="between sft (alpha to 0) and dft's gradient (alpha = 1)",
    confirmed="official code, GaotangLi/Beyond-Log-Likelihood",
)
def alpha_power(s: Signals, *, alpha: NotTiny = 0.5) -> RowTerms:
    """The family between log-likelihood and probability."""
    return RowTerms(torch.exp(-alpha * s.nll), reported=-torch.expm1(-alpha * s.nll) / alpha)


@_register(
    "entropy-reg",
    formula="1, and a loss term -alpha H (nats)",
    reads="gradient of H",
    paper="Probability-Entropy Calibration, arXiv 2602.01745, ablation",
    when="ablation: keep the distribution open",
    confirmed="paper; its code could not be read",
    needs=lambda p: ["entropy_grad"],
)
def entropy_reg(s: Signals, *, alpha: NotNegative = 0.02) -> RowTerms:
    """Plain cross-entropy with an entropy bonus."""
    return RowTerms(torch.ones_like(s.nll), w_entropy=torch.full_like(s.nll, -alpha))


# --- from the literature since ------------------------------------------------------------------------------------


@_register(
    "threshold",
    formula="1[p >= at]; keep=below: 1[p <= at]; weighted=true: times p",
    reads="p",
    paper="Beyond Log Likelihood, arXiv 2510.00526 (OnlyTopP, OnlyBottomP and their LogP forms)",
    when="ablation: which half of the tokens carries the gain",
    confirmed="official code, GaotangLi/Beyond-Log-Likelihood, which divides by the kept tokens",
)
def threshold(
    s: Signals, *, at: Share = 0.1, keep: Literal["above", "below"] = "above", weighted: bool = False
) -> Tensor:
    """Keep the tokens on one side of a probability; divided by all supervised tokens."""
    p = s.p
    kept = (p >= at if keep == "above" else p <= at).to(p.dtype)
    return kept * p if weighted else kept


@_register(
    "profit",
    formula="1[p >= tau]",
    reads="p",
    paper="ProFit, arXiv 2601.09195",
    when="learn only what the model holds possible",
    confirmed="official code, Utaotao/ProFit, direction higher",
)
def profit(s: Signals, *, tau: Share = 0.1) -> Tensor:
    """Drop the tokens the model holds unlikely; divided by all supervised tokens."""
    return (s.p >= tau).to(s.nll.dtype)


@_register(
    "chord",
    formula="p (1-p)",
    reads="p",
    paper="CHORD-phi, arXiv 2508.11408",
    when="learn neither what is known nor what is out of reach",
    confirmed="official code, modelscope/Trinity-RFT, loss sft_phi",
)
def chord(s: Signals) -> Tensor:
    """Highest at p = 1/2."""
    return s.p * -torch.expm1(-s.nll)


@_register(
    "deft",
    formula="p^a; a = sum_v p_v^2",
    reads="p, sum p^2",
    paper="DEFT, arXiv 2602.11424",
    when="dft where the model is sure, sft where it is open",
    confirmed="official code, luludus/DEFT, which divides its loss by a + 1e-6",
    needs=lambda p: ["sum_p2"],
)
def deft(s: Signals) -> Tensor:
    """Alpha-power whose exponent is the collision probability of the distribution."""
    assert s.sum_p2 is not None
    return torch.exp(-s.sum_p2 * s.nll)


@_register(
    "focal",
    formula="(1-p)^gamma",
    reads="p",
    paper="Focal loss, arXiv 1708.02002, stop-gradient form",
    when="the opposite of dft: learn what the model holds unlikely",
    confirmed="official code of mile, as its baseline; the published loss differentiates the factor too",
)
def focal(s: Signals, *, gamma: NotNegative = 2.0) -> Tensor:
    """Probability of everything but the label."""
    return (-torch.expm1(-s.nll)) ** gamma


@_register(
    "mile",
    formula="(1+H)^gamma; H in nats",
    reads="H",
    paper="MiLe loss, arXiv 2310.19531",
    when="emphasise open contexts",
    confirmed="official code, suu990901/LLaMA-MiLe-Loss, divided there by the mean weight of the micro-batch",
)
def mile(s: Signals, *, gamma: float = 1.0) -> Tensor:
    """A power of the entropy; not normalised, so that a token's weight is its own affair."""
    return _exp(gamma * torch.log1p(s.entropy_bits * LN2))


class _Module(ModuleType):
    """Lets `ranktuner.methods()` list the names while `ranktuner.methods` is this module."""

    def __call__(self) -> list[str]:
        from ranktuner.registry import names

        return names()


sys.modules[__name__].__class__ = _Module
