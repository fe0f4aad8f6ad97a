"""Write the generated documents again: `make docs`. A test compares them with code and stored results: no drift."""

from __future__ import annotations

import sys
from pathlib import Path

import stored

from ranktuner import spec
from ranktuner.compare.parts import DiagnoseConfig, EvalConfig, GridConfig, MethodRow, ProblemsConfig
from ranktuner.compare.recipe import Recipe, read_recipe, shipped
from ranktuner.methods import TABLE
from ranktuner.registry import method
from ranktuner.train.reference import settings_tables, tables_of

HERE = Path(__file__).parent

INTRODUCTION = """\
# The methods

Generated from `src/ranktuner/methods.py` by `make docs`; edit there.

A method gives each supervised token a weight for its negative log-likelihood `nll = -ln p`. The loss is
`sum(weight * nll) / num_tokens`, and `num_tokens` counts the supervised tokens of the whole optimiser batch, never the
sum of the weights. Signals: `p` probability of the label, `R` its rank (ties count, 1 is the top), `H` entropy (bits
unless nats are named), `p_max` the largest probability.

A method is written in one line anywhere: `ranktuner(prior=prob, k=0.5)`. A function of your own goes by import path,
`my_package.weights:mine(alpha=2)`; a package offers methods to everybody by entry points in the group
`ranktuner.methods`. A weight that depends on other tokens of the micro-batch says so,
`@ranktuner.weighting(scope="batch")`, and is refused where it does not. Weights saturate at e^64, so that nothing
overflows in fp32 where a label has nll 1e4; the largest weight is logged at every step (`weight_max`), and `cap=` sets
a lower ceiling where a method has it.
"""


def methods_page() -> str:
    """Return docs/methods.md."""
    lines = [INTRODUCTION, "| name | weight of nll | reads | scope | paper |", "| --- | --- | --- | --- | --- |"]
    for name in TABLE:
        chosen = method(name)
        card = chosen.card
        short = card.formula.split("; ")[0].replace("|", "\\|")
        lines.append(f"| [`{name}`](#{name}) | `{short}` | {card.reads} | {chosen.scope} | {card.paper} |")
    for name in TABLE:
        lines += ["", *_section(name)]
    return "\n".join(lines) + "\n"


def _section(name: str) -> list[str]:
    function, card = TABLE[name]
    about = (function.__doc__ or "").strip().splitlines()[0]
    lines = [f"## {name}", "", about, "", f"- weight: `{card.formula}`", f"- reads: {card.reads}"]
    lines += [f"- paper: {card.paper}", f"- formula checked in: {card.confirmed}", f"- use it for: {card.when}"]
    known = spec.parameters_of(function)
    if known:
        lines += ["", "| parameter | values | default |", "| --- | --- | --- |"]
        for key, (annotation, default) in known.items():
            values = spec.describe(annotation).replace("|", "\\|")
            lines.append(f"| `{key}` | {values} | {spec.text_of(default)} |")
    return lines


def training_page() -> str:
    """Return docs/training.md with its table of settings taken from the schema."""
    text = (HERE / "training.md").read_text(encoding="utf-8")
    start, end = text.index("<!-- settings"), text.index("<!-- end of settings")
    first = text.index("\n", start) + 1
    return text[:first] + "\n" + settings_tables() + text[end:]


RECIPE = (
    ("", Recipe), ("methods", MethodRow), ("problems", ProblemsConfig), ("eval", EvalConfig),
    ("diagnose", DiagnoseConfig), ("grid", GridConfig),
)  # fmt: skip


def comparing_page() -> str:
    """Return docs/compare.md with its lists of recipes and settings taken from the code."""
    text = (HERE / "compare.md").read_text(encoding="utf-8")
    listed = "".join(f"| `{name}` | {read_recipe(name).title} |\n" for name in shipped())
    parts = {
        "recipes": "| name | what it compares |\n| --- | --- |\n" + listed + "\n",
        "settings": tables_of(RECIPE, {}, "what it is"),
    }
    for name, made in parts.items():
        start, end = text.index(f"<!-- {name}"), text.index(f"<!-- end of {name}")
        text = text[: text.index("\n", start) + 1] + "\n" + made + text[end:]
    return text


PAGES = {
    "methods.md": methods_page,
    "compare.md": comparing_page,
    "training.md": training_page,
    "results.md": stored.results_page,
    "../README.md": stored.readme,
}


def main() -> int:
    """Write every page; with --check, say which differ and return 1."""
    if "--check" in sys.argv:
        stale = [name for name, page in PAGES.items() if not _same(HERE / name, page())]
        stale += [f"images/{stored.FIGURE}"] if stored.stale_figure() else []
        print("\n".join(f"docs/{name} differs from the code or the stored results: run `make docs`" for name in stale))
        return 1 if stale else 0
    if stored.stale_figure():
        print(f"wrote {stored.draw()}")
    stale = [name for name, page in PAGES.items() if not _same(HERE / name, page())]
    for name in stale:
        (HERE / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
