"""Comparing: `ranktuner.compare(recipe)`, the same as `ranktuner compare` on the command line.

The package itself is callable, so that the folder and the verb share one name.
"""

from __future__ import annotations
