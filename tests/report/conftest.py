"""One made-up project, its page, and one browser for all tests of the report."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import demo
import fetch_axe

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo.project(tmp_path_factory.mktemp("project") / "runs")


@pytest.fixture(scope="session")
def page(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """report.html of the project, with report.json beside it."""
    from ranktuner.report import write

    path = tmp_path_factory.mktemp("page") / "report.html"
    write([project], path)
    return path


@pytest.fixture(scope="session")
def record(page: Path) -> Any:
    return json.loads(page.with_suffix(".json").read_text())


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium without network, with its console and requests recorded."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("no chromium or chromedriver on the PATH: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    made.set_script_timeout(60)
    yield made
    made.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    try:
        return fetch_axe.fetch().read_text()
    except OSError as error:
        pytest.skip(f"axe-core could not be fetched from the npm registry: {error}")
