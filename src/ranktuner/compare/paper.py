"""The paper's numbers as data: files of tables (TOML, figures only), read and checked for consistency. No torch.

    title = "RankTuner"
    source = "where the numbers were read"
    [[table]]
    id = "main"
    model = "Qwen2.5-Math-7B"
    columns = ["math500 pass@1", "math500 pass@16"]
    units = "percent"
    rows = [
      {label = "Original", method = "original", values = [52.1, "missing"]},
      {label = "SFT", method = "sft", values = [60.0, 81.5]},
    ]
    differences = [{of = "SFT", to = "Original", column = "math500 pass@1", value = 7.9}]

`"missing"` says that the paper does not give a number; one that is merely absent is an error.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from ranktuner.errors import DataError, nearest
from ranktuner.train.config import Section, explain, known_keys, read_toml

MISSING = "missing"
"""In the place of a number that the paper does not give."""


class Row(Section):
    """One row of a table."""

    label: str = Field(min_length=1)
    """As the paper calls it; unique in its table."""
    method: str = ""
    """The method of ours that it is, `original` for the model as it was; empty where there is none."""
    values: list[Any]
    """One number for each column, or "missing"."""

    def numbers(self) -> list[float | None]:
        """Return the values, None where the paper gives none."""
        return [None if value == MISSING else float(value) for value in self.values]


class Difference(Section):
    """A difference that the paper prints: the value of one row less that of another."""

    of: str
    to: str
    column: str
    value: float


class Table(Section):
    """One table, or a part of one with a model of its own."""

    id: str = Field(min_length=1)
    model: str = ""
    """The model, as the recipe names it (owner/name or only name); empty: for all."""
    columns: list[str] = Field(min_length=1)
    """`TASK pass@K`, or whatever else a column holds."""
    units: str = "percent"
    """percent, bits, ...; those of every value."""
    rows: list[Row] = Field(min_length=1)
    differences: list[Difference] = Field(default=[])
    note: str = ""

    @field_validator("columns")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        for name in value:
            if not name.strip() or value.count(name) > 1:
                raise ValueError(f"column {name!r} is empty or stands there twice; give each column its own name")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Table:
        where = f"table {self.id!r}" + (f" ({self.model})" if self.model else "")
        labels = [row.label for row in self.rows]
        for row in self.rows:
            if labels.count(row.label) > 1:
                raise ValueError(f"{where}: row {row.label!r} stands there twice; give each row a label of its own")
            for i, column in enumerate(self.columns):
                value = row.values[i] if i < len(row.values) else None
                if value != MISSING and (isinstance(value, bool) or not isinstance(value, int | float)):
                    found = "there is none" if value in (None, "") else f"{value!r} stands there"
                    raise ValueError(
                        f"{where}, row {row.label!r}, column {column!r}: a number is missing ({found}); "
                        f'write the number, or "{MISSING}" where the paper gives none'
                    )
            if len(row.values) > len(self.columns):
                raise ValueError(
                    f"{where}, row {row.label!r}: {len(row.values)} values for {len(self.columns)} columns; "
                    "name the columns, or drop a value"
                )
        for one in self.differences:
            for name, known in ((one.of, labels), (one.to, labels), (one.column, self.columns)):
                if name not in known:
                    raise ValueError(f"{where}: a difference names {name!r}; {nearest(name, known)}")
            for label in (one.of, one.to):
                if self.value(label, one.column) is None:
                    raise ValueError(
                        f"{where}: the difference of {one.of!r} to {one.to!r} in {one.column!r} cannot be recomputed: "
                        f"row {label!r} has no number there; leave the difference out"
                    )
        return self

    def value(self, label: str, column: str) -> float | None:
        """Return the number of a row and a column; None where the paper gives none."""
        (row,) = (row for row in self.rows if row.label == label)
        return row.numbers()[self.columns.index(column)]


class Paper(Section):
    """A file of tables."""

    title: str
    source: str = ""
    """Where the numbers were read."""
    note: str = ""
    table: list[Table] = Field(min_length=1)

    @model_validator(mode="after")
    def _once(self) -> Paper:
        keys = [(table.id, table.model) for table in self.table]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"table {key[0]!r} of model {key[1]!r} stands there twice; join them, or rename one")
        return self

    def for_model(self, model: str) -> list[Table]:
        """Return the tables of a model, by its whole name or what follows the last slash."""
        name = model.rstrip("/").rpartition("/")[2].lower()
        return [t for t in self.table if not t.model or t.model.rstrip("/").rpartition("/")[2].lower() == name]

    def contradictions(self) -> list[Contradiction]:
        """Return the printed differences that the printed values do not give."""
        return [found for table in self.table for one in table.differences if (found := _check(table, one))]


class Contradiction(Section):
    """A printed difference that the printed values do not give."""

    table: str
    model: str
    of: str
    to: str
    column: str
    printed: float
    recomputed: float
    kind: Literal["rounding", "contradiction"]
    """rounding: it fits if the paper subtracted before it rounded."""

    def __str__(self) -> str:
        model = f" ({self.model})" if self.model else ""
        return (
            f"table {self.table}{model}, {self.column}: {self.of} less {self.to} is printed as {self.printed:+g}, "
            f"and the printed values give {self.recomputed:+g} ({self.kind})"
        )


def _check(table: Table, one: Difference) -> Contradiction | None:
    a, b = table.value(one.of, one.column), table.value(one.to, one.column)
    assert a is not None
    assert b is not None
    parts = [Decimal(str(value)) for value in (a, b, one.value)]
    exact = parts[0] - parts[1]
    if exact == parts[2]:
        return None
    # Each of the three may be off by half a unit of the last place that the table prints.
    places = max(-int(part.as_tuple().exponent) for part in parts)
    could_be_rounding = abs(exact - parts[2]) <= Decimal("1.5").scaleb(-places)
    return Contradiction(
        table=table.id,
        model=table.model,
        of=one.of,
        to=one.to,
        column=one.column,
        printed=one.value,
        recomputed=float(exact),
        kind="rounding" if could_be_rounding else "contradiction",
    )


def read_paper(path: str | Path) -> Paper:
    """Return the tables of a file; the first thing that is wrong with it is an error that names it."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file of the paper's numbers; correct `paper` in the recipe")
    tree = read_toml(path)
    try:
        return Paper.model_validate(tree)
    except ValidationError as error:
        known = [*known_keys(Paper), *(f"table.{key}" for key in known_keys(Table))]
        raise DataError(f"{path}: {explain(error.errors()[0], known)}") from None
