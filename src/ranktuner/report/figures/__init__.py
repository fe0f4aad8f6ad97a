"""Which figures draw which kind of Finding."""

from __future__ import annotations

from collections.abc import Callable

from ranktuner.findings import Finding
from ranktuner.report.figures import comparison, entropy, gradients, noise, regimes, surface, tightness
from ranktuner.report.figures.base import Figure

OF_KIND: dict[str, Callable[[Finding], list[Figure]]] = {
    "comparison": comparison.figures,
    "noise": noise.figures,
    "regimes": regimes.figures,
    "tightness": tightness.figures,
    "gradients": gradients.figures,
    "surface": surface.figures,
    "inference-entropy": entropy.figures,
}
"""Kind -> function from one Finding to its figures, in reading order. Evaluations and runs are compared, so
`evaluation.figures` and `training.figures` take several at once."""
