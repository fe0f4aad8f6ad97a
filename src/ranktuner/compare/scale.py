"""`--scale tiny` and `--scale small`: a recipe of the same shape that a laptop runs, with generated problems. No torch.

Rows, models, tasks, n and k stay as they are, so that the tables have the shape of the whole recipe; what is measured
is not the recipe's. Names say so wherever a number stands: `tiny/Qwen3-8B` is a random model in the place of Qwen3-8B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ranktuner.compare.parts import PROBLEMS, DiagnoseConfig, EvalConfig, ProblemsConfig
from ranktuner.compare.recipe import Recipe, merged
from ranktuner.errors import InputError, nearest


@dataclass(frozen=True)
class Scale:
    """How a recipe is made small."""

    name: str
    model: str
    note: str
    problems: ProblemsConfig
    task_problems: int
    """Problems of every generated task."""
    train: dict[str, Any]
    """Settings of the training that win over the recipe's."""
    max_new_tokens: int
    rows: int
    """Of a diagnostic, at most."""
    max_length: int


SCALES = {
    one.name: one
    for one in (
        Scale(
            name="tiny",
            model="tiny",
            note="tiny scale: random models, generated problems",
            problems=ProblemsConfig(train=32, test=8, held_out=24, steps=[2]),
            task_problems=2,
            train={
                "optimizer": {"max_steps": 3, "learning_rate": 1e-2},
                "batch": {"size": 8},
                "data": {"max_length": 256},
            },
            max_new_tokens=4,
            rows=24,
            max_length=256,
        ),
        Scale(
            name="small",
            model="smollm2",
            note="small scale: SmolLM2-135M-Instruct, generated problems",
            problems=ProblemsConfig(train=64, test=16, held_out=24, steps=[2, 3]),
            task_problems=4,
            train={"optimizer": {"epochs": 1}, "batch": {"size": 8}, "data": {"max_length": 512}},
            max_new_tokens=96,
            rows=40,
            max_length=512,
        ),
    )
}
FULL = "full"
NAMES = (FULL, *reversed(SCALES))


def scaled(recipe: Recipe, name: str) -> Recipe:
    """Return the recipe at a scale: full (itself), small or tiny."""
    if name == FULL:
        return recipe
    if name not in SCALES:
        raise InputError(f"--scale {name}: unknown; {nearest(name, NAMES)}")
    scale = SCALES[name]
    models = recipe.models if scale.model == "tiny" else recipe.models[:1]
    tree = recipe.model_dump(exclude_unset=True)
    tree |= {
        "title": f"{recipe.title or recipe.name} ({scale.note})",
        "models": [f"{name}/{model.rstrip('/').rpartition('/')[2]}" for model in models],
        "problems": scale.problems.model_dump(),
        "eval": [_evaluated(one, scale) for one in recipe.eval],
        "diagnose": [_diagnosed(one, scale) for one in recipe.diagnose],
    }
    if recipe.methods:
        over = merged(scale.train, {"data": {"source": [PROBLEMS]}})
        if (recipe.train.get("data") or {}).get("eval"):
            over = merged(over, {"data": {"eval": [PROBLEMS]}})
        tree["train"] = merged(_without_limit(recipe.train), over)
        # What a row sets for itself stays its own, but for the size of the run.
        tree["methods"] = [
            {"method": row.method, "label": row.label, "train": merged(row.train, scale.train) if row.train else {}}
            for row in recipe.methods
        ]
    if recipe.grid:
        tree["grid"] = {**recipe.grid.model_dump(), "held_out": PROBLEMS, "rows": min(recipe.grid.rows, scale.rows)}
    made = Recipe.model_validate(tree)
    made._folder, made._file, made._scale = recipe._folder, recipe._file, name
    return made


def _without_limit(train: dict[str, Any]) -> dict[str, Any]:
    """The training's settings without those of data that are not read now."""
    dropped = ("limit", "prompt_field", "response_field", "prompt_suffix", "streaming")
    data = {key: value for key, value in (train.get("data") or {}).items() if key not in dropped}
    return {**train, "data": data}


def _evaluated(one: EvalConfig, scale: Scale) -> dict[str, Any]:
    own = one.model_dump(exclude_unset=True, exclude={"limit", "data_dir", "generator", "dtype"})
    return {**own, "max_new_tokens": scale.max_new_tokens}


def _diagnosed(one: DiagnoseConfig, scale: Scale) -> dict[str, Any]:
    own = one.model_dump(exclude_unset=True, exclude={"data_dir", "limit", "dtype"})
    own |= {"rows": min(one.rows or scale.rows, scale.rows), "max_length": scale.max_length}
    return own | ({"max_new_tokens": scale.max_new_tokens} if one.tasks else {})
