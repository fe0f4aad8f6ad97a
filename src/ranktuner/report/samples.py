"""The sample browser: stored answers with their grades, as many as the page can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ranktuner.report.sources import Located


def sample_browser(found: Sequence[Located]) -> dict[str, Any] | None:
    return None
