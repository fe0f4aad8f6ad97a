"""The direction of imports, read from the import statements: who may know whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "ranktuner"

SCIENCE = {
    "errors",
    "findings",
    "spec",
    "lagged",
    "registry",
    "bounds",
    "signals",
    "align",
    "kernels",
    "methods",
    "loss",
    "anatomy",
    "fused",
    "armed",
    "attachment",
    "head",
    "data",
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "findings": {"errors"},
    "lock": set(),
    "bounds": {"errors"},
    "align": {"errors"},
    "signals": {"errors", "bounds"},
    "kernels": {"signals", "errors"},
    "spec": {"errors"},
    "lagged": {"errors"},
    "methods": {"signals", "bounds", "lagged", "spec", "errors", "registry"},
    "registry": {"methods", "signals", "lagged", "spec", "errors"},
    "loss": {"signals", "bounds", "registry", "errors"},
    "anatomy": {"kernels", "errors"},
    "fused": {"kernels", "loss", "registry", "signals", "errors"},
    "armed": {"fused", "align", "registry", "signals", "errors"},
    "attachment": {"anatomy", "armed", "fused", "kernels", "loss", "align", "registry", "signals", "errors"},
    "head": {"anatomy", "armed", "attachment", "fused", "kernels", "loss", "align", "registry", "signals", "errors"},
    "data": {"errors"},
    "by_hand": {"registry", "signals", "errors"},
    "pretrained": {"errors"},
    "train": SCIENCE | {"integrations", "lock"},
    "integrations": SCIENCE,
    "evals": {"data", "findings", "lock", "errors"},
    "diagnostics": {"head", "data", "align", "bounds", "signals", "registry", "methods", "findings", "errors", "evals"},
    "report": {"findings", "errors"},
}
EVERYTHING = {"compare", "demo", "cli", "__init__", "__main__"}
NO_TORCH_AT_IMPORT = {"errors", "lock", "findings", "report", "evals", "cli", "data", "__init__"}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py"))


def unit(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    """The dotted names that the file imports; with `top_level_only` those that run when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            module = node.module or ""
            if module == "ranktuner":
                found |= {f"ranktuner.{alias.name}" for alias in node.names}
            found.add(module)
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    name = unit(path)
    if name in EVERYTHING:
        return
    assert name in MAY_IMPORT, f"{name}: a new room in the house; give it a row in MAY_IMPORT and in docs/design"
    ours = {n.split(".")[1] for n in imports(path) if n.startswith("ranktuner.")}
    beyond = ours - MAY_IMPORT[name] - {name}
    assert not beyond, (
        f"{path.relative_to(PACKAGE)} imports {sorted(beyond)}; {name} may import {sorted(MAY_IMPORT[name])}"
    )


@pytest.mark.parametrize(
    "path",
    [p for p in modules() if unit(p) in NO_TORCH_AT_IMPORT or p.name == "config.py"],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_no_torch_when_imported(path: Path) -> None:
    heavy = {n.split(".")[0] for n in imports(path, top_level_only=True)} & {"torch", "transformers", "trl", "vllm"}
    assert not heavy, f"{path.relative_to(PACKAGE)} imports {sorted(heavy)} at the top; import it where it is used"


def test_files_hold_one_idea() -> None:
    long = {str(p.relative_to(PACKAGE)): n for p in modules() if (n := len(p.read_text().splitlines())) > 400}
    assert not long, f"files over 400 lines: {long}"


def test_no_module_shadows_a_library() -> None:
    import sys

    libraries = set(sys.stdlib_module_names) | {"torch", "transformers", "datasets", "accelerate", "peft", "triton"}
    shadows = {str(p.relative_to(PACKAGE)) for p in modules() if p.stem in libraries and p.stem != "__init__"}
    assert not shadows, f"{shadows} take the name of a library and shadow it when run from their folder"
