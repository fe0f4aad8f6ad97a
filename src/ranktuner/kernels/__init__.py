"""Signals and gradients from hidden states and head weight, without keeping logits. A kernel knows no method.

Contract (tie rule, units, dtypes, accumulation, tolerances): README.md beside this file.
"""

from ranktuner.kernels.chunked import FusedSums, fused_sums, signals_from_hidden
from ranktuner.kernels.products import Head

__all__ = ["FusedSums", "Head", "fused_sums", "signals_from_hidden"]
