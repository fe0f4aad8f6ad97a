"""Recipes: what is read, what is refused, and with which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ranktuner.compare.recipe import MethodRow, make_recipe, read_recipe
from ranktuner.errors import InputError

RECIPE = """
name = "mine"
models = ["tiny"]
methods = ["sft", {method = "dft", label = "DFT", train = {optimizer = {epochs = 2}}}]
[problems]
train = 32
[train.data]
source = "problems"
[train.optimizer]
learning_rate = 1e-3
epochs = 3
[[eval]]
tasks = "problems"
n = 4
k = 1
[[eval]]
tasks = ["gsm8k", "math500"]
n = 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_is_read_with_its_rows_and_settings(recipe: Path) -> None:
    read = read_recipe(recipe, ["eval.n=8", "train.optimizer.weight_decay=0.5"])
    assert [row.label for row in read.methods] == ["sft", "DFT"]
    assert [(one.n, one.k) for one in read.eval] == [(8, [1]), (8, None)], "a setting goes to each [[eval]]"
    config = read.train_config("somewhere", read.methods[1], seed=5)
    assert (config.optimizer.epochs, config.optimizer.learning_rate, config.optimizer.weight_decay) == (2, 1e-3, 0.5)
    assert (config.model.path, config.method, config.seed) == ("somewhere", "dft", 5)
    assert read.train_config("m", MethodRow(method="sft")).optimizer.epochs == 3, "one row's settings stay with it"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("eval.tsks=3", "unknown setting 'eval.tsks'; did you mean 'eval.tasks'"),
        ("train.optimizer.epocs=3", "unknown setting 'optimizer.epocs'; did you mean 'optimizer.epochs'"),
        ("train.model.path=x", "train.model.path is filled in for each cell from models, methods, seeds; leave it out"),
        ("train.seed=3", "train.seed is filled in for each cell"),
        ("diagnose.kind=noize", "diagnose.kind is 'noize'; input should be 'noise', 'tightness'"),
        ("diagnose.kind=noise", "diagnose of kind 'noise' needs data; set it in its"),
        ("eval.n=0", "eval.n is 0; input should be greater than or equal to 1"),
        ("eval.k=5", "eval.k has 5 and eval.n is 4; pass@k needs at least k samples"),
        ("grid.learning_rates=[1e-3, 1e-3]", "expected different numbers above 0"),
        ("methods=['sft','sft']", "methods: 'sft' stands there twice; give each row a label of its own"),
        ("methods=['original']", "'original' stands there twice"),
        ("name=a/b", "name is 'a/b'; string should match pattern"),
        ("train.data.source=[]", "methods are to be trained, but train.data.source is missing"),
        ("problems.train=0", "problems.train is 0"),
        ("models=[]", "models is []; list should have at least 1 item"),
    ],
)
def test_what_is_wrong_is_named(recipe: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_recipe(recipe, [setting])
    assert message in str(caught.value)


def test_problems_need_their_section() -> None:
    with pytest.raises(InputError, match=r"'problems' is named as data or task, but there is no \[problems\] section"):
        make_recipe({"name": "a", "models": ["tiny"], "eval": {"tasks": ["problems"]}})


def test_a_recipe_that_measures_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="nothing would be measured"):
        make_recipe({"name": "a", "models": ["tiny"]})


def test_an_unknown_recipe_is_answered_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: there is no such recipe; give the path"):
        read_recipe(tmp_path / "nowhere.toml")
    with pytest.raises(InputError, match="unknown recipe 'main-reslts'"):
        read_recipe("main-reslts")


def test_reading_a_recipe_imports_no_torch(recipe: Path) -> None:
    code = f"""
import sys
from ranktuner.compare.recipe import read_recipe
read_recipe({str(recipe)!r})
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
