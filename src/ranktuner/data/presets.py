"""Presets: the public data sets of the paper and of common practice, each with the prior that suits it.

`gsm8k` reads the data set from the hub; `gsm8k:FILE` reads a local copy the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ranktuner.data.rows import RowOptions, Rows, open_rows, read_hub
from ranktuner.errors import DataError, InputError

_CALCULATOR = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True)
class Preset:
    """One data set by name."""

    hub: str
    """Its id on the hub."""
    about: str
    """One line for `--help`."""
    prior: str
    """`prob` where models are already strong (mathematics), `uniform` for general data and code."""
    fields: tuple[str, ...]
    """The shape to take."""
    config: str | None = None
    """The configuration's name on the hub."""
    limit: int | None = None
    """Only so many rows, from the front."""
    clean: Callable[[str], str] | None = None
    """Applied to every text that is learnt."""


def without_calculator_marks(text: str) -> str:
    """Return a GSM8K solution without its `<<48/2=24>>` marks, which no reader would write."""
    return _CALCULATOR.sub("", text)


PRESETS: dict[str, Preset] = {
    "numina-cot": Preset(
        "AI-MO/NuminaMath-CoT",
        "competition mathematics with worked solutions, the first 10,000 rows (the paper's mathematics data)",
        "prob",
        ("problem", "solution"),
        limit=10_000,
    ),
    "evol-instruct-code": Preset(
        "nickrosh/Evol-Instruct-Code-80k-v1", "evolved programming tasks", "uniform", ("instruction", "output")
    ),
    "gsm8k": Preset(
        "openai/gsm8k",
        "grade-school mathematics, without calculator marks",
        "prob",
        ("question", "answer"),
        config="main",
        clean=without_calculator_marks,
    ),
    "alpaca": Preset("tatsu-lab/alpaca", "general instructions", "uniform", ("instruction", "output")),
}


def split_source(source: str) -> tuple[str | None, str]:
    """Return (preset, local path or "") of a source; (None, source) where it names no preset."""
    name, colon, path = source.partition(":")
    if name in PRESETS and (colon or not Path(source).exists()):
        return name, path
    return None, source


def prior_for(sources: Sequence[str]) -> tuple[str, str]:
    """Return the prior that suits the data, and why: a preset's own, or `uniform` for data we know nothing about."""
    names = [name for source in sources if (name := split_source(source)[0])]
    priors = {PRESETS[name].prior for name in names}
    if len(names) == len(sources) and len(priors) == 1:
        return priors.pop(), f"the preset {', '.join(names)} chooses it"
    return "uniform", "for general data; name prior=prob for mathematics the model already knows well"


def open_data(sources: Sequence[str], options: RowOptions | None = None) -> Rows:
    """Return the rows of presets, files, folders or hub ids; several of one kind are read one after another.

    Args:
        sources: each a preset (`gsm8k`, `gsm8k:FILE`) or what `open_rows` takes.
        options: how to read; a preset's shape, limit and repair come on top.
    """
    options = options or RowOptions()
    names = {split_source(source)[0] for source in sources}
    if len(names) > 1:
        raise InputError(f"data {', '.join(sources)}: a preset cannot be mixed with other data in one run; convert it")
    if (name := next(iter(names), None)) is None:
        return open_rows(list(sources), options)
    preset = PRESETS[name]
    # Public sets hold a few empty rows (Alpaca has four in nine thousand): passed over, and counted.
    options = replace(
        options,
        fields=preset.fields,
        clean=preset.clean,
        skip_empty=True,
        limit=options.limit or preset.limit,
    )
    paths = [path for source in sources if (path := split_source(source)[1])]
    if paths:
        return open_rows(paths, options)
    try:
        return Rows(name, [(name, read_hub(preset.hub, preset.config))], options)
    except DataError as error:
        raise DataError(f"{error} as {name}:FILE") from None
