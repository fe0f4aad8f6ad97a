"""Training: `ranktuner.train(config)`, the same as `ranktuner train` on the command line.

The package itself is callable, so that the folder and the verb share one name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktuner.train.config import TrainConfig
    from ranktuner.train.run import RunResult


class _Package(ModuleType):
    def __call__(self, config: TrainConfig | Mapping[str, Any] | str | Path, **options: Any) -> RunResult:
        from ranktuner.train.run import train

        return train(config, **options)


sys.modules[__name__].__class__ = _Package
