"""Pictures of a report for the README: python docs/screenshots.py report.html [docs/images]

Needs chromium, chromedriver and selenium; the font Inter (Debian: fonts-inter) makes them look the same everywhere.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    "--hide-scrollbars",
]

TOKENS = """
    document.querySelector('#signal input[value="{signal}"]').click();
    document.getElementById('next-under').click();
    document.getElementById('next-under').click();
    document.querySelector('#tokens').scrollIntoView();
    scrollBy(0, {down});
"""
SHOTS: dict[str, tuple[int, int, str, str]] = {
    "overview-light": (1360, 900, "light", "scrollTo(0, 0)"),
    "comparison-light": (
        1360,
        900,
        "light",
        "(document.querySelector('#comparison') || document.body).scrollIntoView()",
    ),
    "tokens-light": (1360, 900, "light", TOKENS.format(signal="indicator", down=100)),
    "tokens-dark": (1360, 900, "dark", TOKENS.format(signal="entropy_bits", down=100)),
    "diagnostics-light": (1360, 900, "light", "document.querySelector('#diagnostics').scrollIntoView()"),
    "surface-dark": (1360, 900, "dark", "(document.querySelector('#fig-surface') || document.body).scrollIntoView()"),
    "phone-light": (390, 844, "light", TOKENS.format(signal="p", down=620)),
    "phone-dark": (390, 844, "dark", "scrollTo(0, 0)"),
}
"""Name -> width, height, colour scheme, and a script that brings the right part into view."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that ends with the block."""
    from selenium import webdriver

    browser, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver_program:
        sys.exit("no chromium or chromedriver on the PATH: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
        try:
            yield driver
        finally:
            driver.quit()


def shoot(driver: Any, page: Path, name: str, folder: Path) -> Path:
    """Take one picture, at twice the density for phones."""
    width, height, scheme, script = SHOTS[name]
    phone = width < 600
    size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1.5, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    driver.get(page.resolve().as_uri())
    deadline = time.monotonic() + 60
    while driver.execute_script("return document.querySelectorAll('.plot:not([data-drawn])').length"):
        if time.monotonic() > deadline:
            sys.exit(f"{page}: some plots were not drawn within a minute")
        time.sleep(0.1)
    driver.execute_script(f"document.documentElement.style.scrollBehavior = 'auto'; {script}")
    time.sleep(0.4)
    path = folder / f"{name}.webp"  # a third of a PNG
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 85})
    path.write_bytes(base64.b64decode(taken["data"]))
    return path


def main(page: str, folder: str = "docs/images") -> None:
    """Take every picture that the page has a part for."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    text = Path(page).read_text(encoding="utf-8")
    with chromium() as driver:
        for name, (*_, script) in SHOTS.items():
            if ("#tokens" in script and 'id="tokens"' not in text) or (
                "#diagnostics" in script and 'id="diagnostics"' not in text
            ):
                print(f"{name}: the page has no such part, skipped")
                continue
            print(shoot(driver, Path(page), name, target))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
