"""The paper's tables in recipes/paper: whole, consistent with themselves, and of the shape that their recipes have."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

from ranktuner.compare.paper import Paper, Table, read_paper
from ranktuner.compare.recipe import read_recipe, recipes_folder, shipped
from ranktuner.evals.tasks.catalog import CATALOG
from ranktuner.registry import method

FILES = sorted((recipes_folder() / "paper").glob("*.toml"))
PAPERS = {path.stem: read_paper(path) for path in FILES}
SCORES = [
    (table, row.label, task, int(k), value)
    for paper in PAPERS.values()
    for table in paper.table
    for row in table.rows
    for column, value in zip(table.columns, row.numbers(), strict=True)
    if value is not None and (parts := column.partition(" pass@"))[1]
    for task, k in [(parts[0], parts[2])]
]
"""Every score there is: table, row, task, k, value."""
WITH_PAPER = [name for name in shipped() if read_recipe(name).paper]


def _table(name: str, model: str = "") -> Table:
    (table,) = [t for t in PAPERS[name].table if t.model == model]
    return table


def test_every_file_belongs_to_a_recipe() -> None:
    named = {Path(str(read_recipe(name).paper)).stem for name in WITH_PAPER}
    assert named == set(PAPERS) - {"set-sizes"}
    assert len(WITH_PAPER) >= 12


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_printed_differences_are_what_the_printed_values_give(name: str) -> None:
    assert PAPERS[name].contradictions() == []


def test_there_are_differences_to_recompute() -> None:
    assert len(_table("main-results", "Qwen3-8B").differences) == 11


@pytest.mark.parametrize("name", WITH_PAPER)
def test_a_table_has_the_rows_and_columns_of_its_recipe(name: str) -> None:
    recipe = read_recipe(name)
    paper: Paper = PAPERS[Path(str(recipe.paper)).stem]
    ours = [("Original", "original"), *((row.label, row.method) for row in recipe.methods)]
    columns = [f"{task} pass@{k}" for one in recipe.eval for task in one.tasks for k in one.k or []]
    for model in recipe.models if recipe.eval else []:
        (table,) = [t for t in paper.for_model(model) if t.model]
        assert table.columns == columns
        rows = [(row.label, row.method) for row in table.rows]
        assert rows == (ours if rows[0] == ours[0] else ours[1:])
    for row in (row for table in paper.table for row in table.rows):
        if "(" in row.method:
            method(row.method)


def test_scores_are_shares_of_whole_problems() -> None:
    """With 16 samples a problem, pass@16 is a multiple of 1/problems and pass@1 of 1/(16 problems)."""
    assert len(SCORES) == 31
    for table, row, task, k, value in SCORES:
        units = CATALOG[task].expected * (16 if k == 1 else 1)
        nearest = round(value * units / 100) * 100 / units
        assert abs(nearest - value) < 0.005 + 1e-9, (table.model, row, task, k, value)


def test_olympiadbench_has_675_problems_and_not_the_size_that_the_paper_prints() -> None:
    values = [value for _, _, task, k, value in SCORES if task == "olympiadbench" and k == 16]
    assert values == [51.11, 60.0, 64.0]
    assert [round(value * 6.75, 1) for value in values] == [345.0, 405.0, 432.0]
    assert round(323 / 675 * 100, 2) == 47.85
    assert _table("set-sizes").value("OlympiadBench", "problems") == 8476 != CATALOG["olympiadbench"].expected


def test_more_samples_never_solve_fewer_problems() -> None:
    found = {(t.model, row, task, k): value for t, row, task, k, value in SCORES}
    pairs = [(found[key], found[*key[:3], 16]) for key in found if key[3] == 1 and (*key[:3], 16) in found]
    assert len(pairs) == 10
    assert all(one < sixteen for one, sixteen in pairs)


def test_the_strongest_baseline_is_the_strongest_that_is_known() -> None:
    table = _table("main-results", "Qwen3-8B")
    others = [row.label for row in table.rows if row.label != "RankTuner"]
    for one in table.differences:
        known = [value for label in others if (value := table.value(label, one.column)) is not None]
        assert table.value(one.to, one.column) == max(known)


def test_the_noise_table_has_one_share_of_noise() -> None:
    """Precision over recall is (noise / all tokens) / 10 %, whatever the score."""
    table = _table("noise")
    bounds = []
    for row in table.rows:
        precision, recall, _ = (number for number in row.numbers() if number is not None)
        corners = [(precision + a) / (recall + b) for a, b in product((-0.005, 0.005), repeat=2)]
        bounds.append((min(corners), max(corners)))
    assert max(low for low, _ in bounds) < min(high for _, high in bounds)
    assert 0.0081 < max(low for low, _ in bounds) * 0.1 < 0.0083


def test_the_exact_elasticity_is_what_appendix_k_prints() -> None:
    table = next(t for t in PAPERS["dynamic-k"].table if t.id == "exact-k")
    for row in table.rows:
        xi = float(row.label.removeprefix("xi = "))
        assert row.values[0] == round(xi / (xi + 1) / math.log2(xi + 1) ** 2, 3)
