"""Comparing: `ranktuner.compare(recipe)`, the same as `ranktuner compare` on the command line.

The package itself is callable, so that the folder and the verb share one name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktuner.compare.recipe import Recipe
    from ranktuner.compare.run import Comparison


class _Package(ModuleType):
    def __call__(self, recipe: Recipe | Mapping[str, Any] | str | Path, **options: Any) -> Comparison:
        from ranktuner.compare.run import compare

        return compare(recipe, **options)


sys.modules[__name__].__class__ = _Package
