"""A recipe: which methods are compared, on which models, trained and measured how. One TOML file, read here; no torch.

    name = "mine"
    models = ["MODEL"]
    methods = ["sft", "dft", "ranktuner(prior=prob)"]
    [train.data]
    source = ["train.jsonl"]
    [eval]
    tasks = ["gsm8k"]

Paths are those of the folder that the command runs in, as everywhere; only `paper` lies beside the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from ranktuner.compare.parts import PROBLEMS, DiagnoseConfig, EvalConfig, GridConfig, MethodRow, ProblemsConfig
from ranktuner.errors import InputError, nearest
from ranktuner.train.config import Section, TrainConfig, explain, known_keys, make_config, read_toml, split_setting

FIXED = ("model.path", "method", "output", "seed")
"""Settings of a training that the recipe fills in for each cell."""
ORIGINAL = "original"
"""The first row of every table: the model as it was."""


class Recipe(Section):
    """Everything `ranktuner compare` can be told."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")
    """Letters, digits, dashes; names the output."""
    title: str = ""
    """One line for the report's heading; default the name."""
    paper: str | None = None
    """File of the paper's numbers, beside the recipe: they are printed beside ours."""
    models: list[str] = Field(min_length=1)
    """Folders, hub ids, `smollm2` (SmolLM2-135M-Instruct from PyPI), `tiny` (random, a few thousand parameters)."""
    methods: list[MethodRow] = Field(default=[])
    """Token weightings, or tables {method, label, train}; the original model is always the first row."""
    seeds: list[int] = Field(default=[0], min_length=1)
    """One training each; their samples are pooled in the table."""
    output: str | None = None
    """Folder of the result; default runs/compare/NAME."""
    problems: ProblemsConfig | None = None
    train: dict[str, Any] = Field(default={})
    """Any settings of `ranktuner train` (docs/training.md) but model.path, method, output and seed."""
    eval: list[EvalConfig] = Field(default=[])
    diagnose: list[DiagnoseConfig] = Field(default=[])
    grid: GridConfig | None = None
    _folder: Path = PrivateAttr(default_factory=Path)
    _file: Path | None = PrivateAttr(default=None)
    _scale: str = PrivateAttr(default="full")

    @field_validator("methods", mode="before")
    @classmethod
    def _rows(cls, value: Any) -> Any:
        return [{"method": row} if isinstance(row, str) else row for row in value] if isinstance(value, list) else value

    @field_validator("eval", "diagnose", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _no_conflicts(self) -> Recipe:
        for what, names in (
            ("models", self.models),
            ("methods", [ORIGINAL, *(row.label for row in self.methods)]),
            ("seeds", self.seeds),
        ):
            twice = [name for name in names if list(names).count(name) > 1]
            if twice:
                raise ValueError(f"{what}: {twice[0]!r} stands there twice; give each row a label of its own")
        if self.methods and not (self.train.get("data") or {}).get("source"):
            raise ValueError("methods are to be trained, but train.data.source is missing; name the data to train on")
        if not self.eval and not self.diagnose:
            raise ValueError("nothing would be measured; add an [eval] with tasks, or a [[diagnose]]")
        if self.uses_problems() and self.problems is None:
            raise ValueError("'problems' is named as data or task, but there is no [problems] section")
        for row in self.methods:
            self.train_config("MODEL", row)
        return self

    @property
    def scale(self) -> str:
        """The scale that the recipe was brought to: full, small or tiny."""
        return self._scale

    @property
    def file(self) -> Path | None:
        """The file that it was read from."""
        return self._file

    def uses_problems(self) -> bool:
        """Return whether the generated problems are named anywhere."""
        data = self.train.get("data") or {}
        named = [*_listed(data.get("source")), *_listed(data.get("eval"))]
        named += [task for one in self.eval for task in one.tasks]
        named += [x for one in self.diagnose for x in (*one.data, *one.noise, *one.tasks)]
        named += [self.grid.held_out] if self.grid else []
        return PROBLEMS in [name.rpartition("=")[2] for name in named]

    def train_config(self, model: str, row: MethodRow, seed: int = 0) -> TrainConfig:
        """Return the settings of one training, with places as the recipe names them."""
        tree = merged(self.train, row.train)
        for name in FIXED:
            section, _, key = name.rpartition(".")
            if key in (tree.get(section, {}) if section else tree):
                raise ValueError(f"train.{name} is filled in for each cell from models, methods, seeds; leave it out")
        try:
            return make_config(merged(tree, {"model": {"path": model}, "method": row.method, "seed": seed}))
        except InputError as error:
            raise ValueError(f"train: {error}") from None

    def paper_file(self) -> Path | None:
        """Return the file of the paper's numbers, which lies beside the recipe."""
        return self._folder / self.paper if self.paper else None


def recipes_folder() -> Path:
    """Return the folder of the recipes that come with RankTuner."""
    package = Path(__file__).parents[1]
    inside = package / "recipes"  # in an installed package; in a checkout they stand at the top
    return inside if inside.is_dir() else package.parents[1] / "recipes"


def shipped() -> list[str]:
    """Return the names of the recipes that come with RankTuner."""
    return sorted(path.stem for path in recipes_folder().glob("*.toml"))


def find_recipe(name: str | Path) -> Path:
    """Return the file of a recipe: the path of a .toml, or the name of one that comes with RankTuner."""
    text = str(name)
    if text.endswith(".toml") or re.search(r"[/\\]", text):
        if not Path(text).expanduser().is_file():
            beside = nearest(Path(text).stem, shipped()) if shipped() else ""
            raise InputError(f"{text}: there is no such recipe; give the path of a .toml file, or a name; {beside}")
        return Path(text).expanduser()
    if text not in shipped():
        raise InputError(f"unknown recipe {text!r}; {nearest(text, shipped())} (or give the path of a .toml file)")
    return recipes_folder() / f"{text}.toml"


def read_recipe(name: str | Path, sets: Iterable[str] = ()) -> Recipe:
    """Return the recipe of a file or of a shipped name.

    Args:
        name: path of a .toml, or a name of `shipped()`.
        sets: settings as `section.key=value` that win over the file; those of [[eval]] and [[diagnose]] go to each.
    """
    path = find_recipe(name)
    tree = read_toml(path)
    for text in sets:
        _put(tree, *split_setting(text))
    recipe = make_recipe(tree, str(path))
    recipe._folder, recipe._file = path.parent, path
    return recipe


def make_recipe(tree: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """Return the recipe of a nested mapping, or the first thing that is wrong with it."""
    try:
        return Recipe.model_validate(dict(tree))
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error.errors()[0], _known())}") from None


def merged(tree: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested mapping with the values of another over its own."""
    made = dict(tree)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(made.get(key), Mapping)
        made[key] = merged(made[key], value) if both else value
    return made


def _known() -> list[str]:
    """Every setting of a recipe by its dotted name."""
    parts: dict[str, type[Section]] = {
        "eval": EvalConfig, "diagnose": DiagnoseConfig, "grid": GridConfig, "problems": ProblemsConfig,
        "methods": MethodRow, "train": TrainConfig,
    }  # fmt: skip
    inner = [key for name, part in parts.items() for key in known_keys(part, f"{name}.")]
    return [name for name in Recipe.model_fields if name not in parts] + inner


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    head, dot, rest = path.partition(".")
    if not dot:
        tree[head] = value
        return
    inner = tree.setdefault(head, {})
    for one in inner if isinstance(inner, list) else [inner]:
        if not isinstance(one, dict):
            raise InputError(f"--set {path}: {head!r} is a value, not a section")
        _put(one, rest, value)
