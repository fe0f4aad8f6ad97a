"""What the documents and examples promise is what the code does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The table of the four tokens, worked out by hand from the formula: scale S, p*S, DFT.
EXPECTED = {
    "6, sure context": (4.67, 0.093, 0.020),
    "essentially, open context": (1.06, 0.021, 0.020),
    "inserted noise word": (1.09, 0.0004, 0.0004),
    "easy token": (1.00, 0.971, 0.970),
}


def test_generated_pages_are_those_of_the_code() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_weights_by_hand_prints_the_four_tokens() -> None:
    done = subprocess.run(
        [sys.executable, "examples/01_weights_by_hand.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()[1:]
    assert len(lines) == len(EXPECTED)
    for line, (text, numbers) in zip(lines, EXPECTED.items(), strict=True):
        assert line.startswith(text)
        scale, weight, plain = (float(x) for x in line.split()[-3:])
        assert scale == pytest.approx(numbers[0], abs=0.005)
        assert weight == pytest.approx(numbers[1], abs=0.0006)
        assert plain == pytest.approx(numbers[2], abs=0.00005)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "src").rglob("README.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_tree_of_the_readme_is_the_one_on_disk() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"## What is where\n+```\n(.*?)```", text, flags=re.DOTALL)
    assert tree is not None
    for line in tree[1].splitlines():
        folder = ROOT / "src" / "ranktuner" if line.startswith("  ") else ROOT
        for name in re.match(r"\s*((?:\S+ )+)", line)[1].split():  # type: ignore[index]
            assert (folder / name).exists(), f"the README's tree names {name}, which is not in {folder}"
    assert {f"  {p.name}/" for p in (ROOT / "src" / "ranktuner").iterdir() if (p / "__init__.py").exists()} <= {
        line.split("/")[0] + "/" for line in tree[1].splitlines()
    }


def test_make_alone_prints_a_menu_of_what_exists() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    menu = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = {line.split()[1] for line in menu.splitlines()}
    assert {"demo", "test", "check", "bench", "docs", "wheel", "test-gpu", "bench-gpu"} <= listed
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for script in re.findall(r"\S+\.py\b", makefile):
        assert (ROOT / script).exists(), f"the Makefile runs {script}, which does not exist"
    assert "make check test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_readme_code_runs(tmp_path: Path) -> None:
    """The ten lines of use in the README, as they stand."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, "the README shows no Python"
    # It runs in a folder of its own, where a path such as PYTHONPATH=src of the checkout would mean nothing.
    path = os.pathsep.join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", blocks[0]], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
