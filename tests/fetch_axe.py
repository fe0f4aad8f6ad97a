"""Fetch axe-core, the accessibility checker of the browser tests, into `.cache/` (once): python tests/fetch_axe.py"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.14.0"
SHA512 = "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
CACHE = Path(__file__).parents[1] / ".cache"


def fetch(cache: Path = CACHE) -> Path:
    """Return the path of `axe.min.js`; the first call downloads 0.7 MB. OSError without npm or its registry."""
    path = cache / f"axe-{VERSION}.min.js"
    if path.exists():
        return path
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("npm is not installed")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=120)
        packed = next(Path(work).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise OSError(f"npm pack axe-core@{VERSION} failed: {done.stderr.strip()[-300:]}")
        digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if digest != SHA512:
            raise ValueError(f"{packed.name}: sha512 is {digest}, expected {SHA512}: do not use this file")
        with tarfile.open(packed) as archive:
            script = archive.extractfile("package/axe.min.js")
            assert script is not None
            part = Path(work) / "axe.min.js"
            part.write_bytes(script.read())
        part.replace(path)
    return path


if __name__ == "__main__":
    print(fetch())
