"""The folder of a result: whose it is, and its record of the cells. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ranktuner.compare.cells import Cells
from ranktuner.compare.places import version
from ranktuner.compare.recipe import Recipe
from ranktuner.errors import InputError
from ranktuner.train.config import changed
from ranktuner.train.folder import write_json

MANIFEST = "compare.json"


def claim(folder: Path, recipe: Recipe, console: Any) -> None:
    """Refuse a folder that holds another recipe's result, or something else.

    The same file may have changed since: that is said, and its table is made again; its cells are where they were.
    """
    path = folder / MANIFEST
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                f"{folder}: the folder is not empty and holds no comparison (no {MANIFEST}); choose another --output"
            )
        return
    try:
        before: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        old = before["content"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not readable ({error}); move the folder away, or choose another --output") from None
    now = identity(recipe)
    other = {key for key in now if before.get(key) != now[key]}
    differ = changed(old, content(recipe))
    if other or (differ and recipe.file is None):
        was = (
            f"the recipe {before.get('recipe')!r} ({before.get('file') or 'given as a mapping'}, {before.get('scale')})"
        )
        this = f"{recipe.name!r} ({now['file'] or 'given as a mapping'}, {recipe.scale})"
        what = f"; they differ in {'; '.join(differ[:3])}" if differ and not other else ""
        raise InputError(
            f"{folder} holds the result of {was}, this is {this}{what}: two recipes would overwrite each other's "
            "report; choose another --output (cells are shared all the same)"
        )
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        console.print(
            f"note     the recipe has changed since: {'; '.join(differ[:3])}{more}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def identity(recipe: Recipe) -> dict[str, Any]:
    """Return what names a recipe: another one may not write into the same folder."""
    return {
        "recipe": recipe.name,
        "file": str(recipe.file.resolve()) if recipe.file else None,
        "scale": recipe.scale,
    }


def content(recipe: Recipe) -> dict[str, Any]:
    """Return everything that a recipe says."""
    return recipe.model_dump(mode="json", exclude={"output"})


def write_manifest(folder: Path, cells: Cells, errors: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what the recipe is, and every cell of it with its folder and state."""
    store = cells.store
    listed = []
    for entry in cells.entries():
        place = {"stage": entry.stage, "model": entry.model, "label": entry.label, "seed": entry.seed}
        record: dict[str, Any] = {**place, "name": entry.name}
        if entry.cell is None:
            listed.append({**record, "state": "after the grid"})
            continue
        failed = errors.get(entry.cell.key) or store.failed(entry.cell)
        state = "failed" if failed and store.done(entry.cell) is None else store.state(entry.cell)
        record |= {"key": entry.cell.key, "folder": str(store.folder(entry.cell)), "state": state}
        if state == "failed" and failed:
            record |= {"error": failed["error"], **({"needs": failed["needs"]} if "needs" in failed else {})}
        listed.append(record)
    facts = {**identity(cells.recipe), "ranktuner": version(), "content": content(cells.recipe), "cells": listed}
    write_json(folder / MANIFEST, facts)
