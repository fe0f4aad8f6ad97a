"""Figures: each kind draws, on page and paper, the numbers of its Finding; the palette can be told apart and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import demo
import pytest

from ranktuner.errors import DataError, InputError
from ranktuner.findings import Finding
from ranktuner.report.figures import OF_KIND, training
from ranktuner.report.figures.theme import PALETTE, resolve, slots
from ranktuner.report.paper import all_figures, paper_spec, write_figures
from ranktuner.report.sources import read

FINDINGS = {
    f.kind: f
    for f in (
        demo.comparison(),
        demo.noise(),
        demo.tightness(),
        demo.regimes(),
        demo.gradients(),
        demo.surface(),
        demo.inference_entropy(),
    )
}
# Corners of cells and the diagonal of the surface are geometry.
GEOMETRY = {"surface": {"x", "x2", "y", "y2"}}


def leaves(tree: Any) -> Iterator[float]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value)
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield float(tree)


def rows_of(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict):
        if isinstance(spec.get("data"), dict):
            yield from spec["data"].get("values", [])
        for value in spec.values():
            yield from rows_of(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from rows_of(value)


@pytest.mark.parametrize("kind", FINDINGS)
def test_a_figure_draws_the_numbers_of_its_finding_and_no_others(kind: str) -> None:
    finding = Finding.from_json(FINDINGS[kind].to_json())
    known = set(leaves(dict(finding.numbers)))
    drawn = 0
    for figure in OF_KIND[kind](finding):
        for panel in figure.panels:
            for row in rows_of(panel.spec):
                numbers = {k: v for k, v in row.items() if k not in GEOMETRY.get(kind, ())}
                strange = set(leaves(numbers)) - known
                assert not strange, f"{figure.id}: {strange} in {row}"
                drawn += len(numbers)
    assert drawn > 10


@pytest.mark.parametrize("kind", FINDINGS)
def test_a_figure_is_real_vega_lite(kind: str) -> None:
    """The compiler accepts it and the picture has marks, text and no colour variable left."""
    import vl_convert

    for figure in OF_KIND[kind](FINDINGS[kind]):
        svg = vl_convert.vegalite_to_svg(paper_spec(figure))
        assert "var(--" not in svg
        assert "NaN" not in svg
        assert svg.count("<path") > 5
        for panel in figure.panels:
            assert panel.title.split(" (")[0].split("(")[0] in svg


def test_every_kind_with_a_figure_is_tested() -> None:
    assert set(FINDINGS) == set(OF_KIND)


def test_training_curves_keep_first_and_last_step_of_long_runs(tmp_path: Path) -> None:
    demo.run(tmp_path / "long", "sft", 0, steps=1500)
    runs = read([tmp_path]).runs
    rows = training.thinned(runs[0])
    assert len(rows) <= training.MOST_POINTS
    assert (rows[0]["step"], rows[-1]["step"]) == (1, 1500)
    figures = training.figures(runs)
    assert "at most 400 points" in figures[0].note
    assert {row["step"] for row in rows_of(dict(figures[0].panels[0].spec))} >= {1, 1500}


def test_known_methods_keep_their_colours() -> None:
    assert slots(["ranktuner(prior=prob)", "sft"]) == {"ranktuner(prior=prob)": 0, "sft": 1}
    two = slots(["ranktuner", "ranktuner(k=0.5)", "mine"])
    assert two["ranktuner"] == 0
    assert len(set(two.values())) == 3
    assert 1 not in two.values(), "grey stays with plain SFT"
    assert len(slots([f"m{i}" for i in range(12)])) == 12


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [0, 1])
def test_text_is_readable_on_every_colour_behind_it(dark: int) -> None:
    pick = {name: pair[dark] for name, pair in PALETTE.items()}
    for name in pick:
        if name[0] in "qd" and name[1:].isdigit():
            assert contrast(pick["ink"], pick[name]) >= 4.5, name
    for name in ("ink", "ink-2", "accent", "good", "bad"):
        assert contrast(pick[name], pick["paper"]) >= 4.5, name
        assert contrast(pick[name], pick["panel"]) >= 4.5, name
    for i in range(8):
        assert contrast(pick[f"c{i}"], pick["paper"]) >= 3, f"c{i}"


def seen_by(colour: str, blindness: str) -> list[float]:
    """The colour as a dichromat sees it (Viénot, Brettel and Mollon 1999; linear RGB)."""
    matrix = {
        "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    }[blindness]
    linear = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
    return [max(0.0, sum(m * c for m, c in zip(line, linear, strict=True))) ** (1 / 2.2) for line in matrix]


@pytest.mark.parametrize("blindness", ["protan", "deutan"])
@pytest.mark.parametrize("dark", [0, 1])
def test_both_ends_of_the_two_sided_ramps_differ_for_the_colour_blind(blindness: str, dark: int) -> None:
    for low, high in (("d0", "d8"), ("v0", "v8")):
        a, b = seen_by(PALETTE[low][dark], blindness), seen_by(PALETTE[high][dark], blindness)
        assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 > 0.35


@pytest.mark.parametrize("dark", [0, 1])
@pytest.mark.parametrize("letter", "qh")
def test_one_sided_ramps_go_one_way_in_lightness(letter: str, dark: int) -> None:
    steps = [luminance(PALETTE[f"{letter}{i}"][dark]) for i in range(10)]
    assert steps == sorted(steps, reverse=steps[0] > steps[-1])
    assert max(steps) / min(steps) > 1.7


def test_resolve_writes_out_nested_colours() -> None:
    assert resolve({"a": ["var(--c0)", 3], "b": "x var(--ink) y"}) == {"a": ["#2257a8", 3], "b": "x #1c1e22 y"}


def test_figures_for_papers_are_files(project: Path, tmp_path: Path) -> None:
    made = write_figures([project], tmp_path / "figures", ["svg", "pdf"], only=["surface", "noise"])
    assert sorted(p.name for p in made) == [
        "noise-weights.pdf",
        "noise-weights.svg",
        "noise.pdf",
        "noise.svg",
        "surface.pdf",
        "surface.svg",
    ]
    assert all(p.read_bytes().startswith(b"%PDF") for p in made if p.suffix == ".pdf")
    assert "<svg" in (tmp_path / "figures" / "surface.svg").read_text()


def test_figures_refuse_by_name(project: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no figure 'nois' in these files; did you mean 'noise'"):
        write_figures([project], tmp_path, only=["nois"])
    with pytest.raises(InputError, match="format 'jpeg': "):
        write_figures([project], tmp_path, formats=["jpeg"])
    demo.tokens().save(tmp_path / "tokens.json")
    with pytest.raises(DataError, match="no figure can be drawn from these files"):
        all_figures(read([tmp_path / "tokens.json"]))


def test_numbers_in_another_layout_are_named_not_drawn(tmp_path: Path) -> None:
    good = demo.noise()
    Finding(good.kind, good.title, good.n, {"scores": [{"kind": "score"}]}).save(tmp_path / "noise.json")
    demo.surface().save(tmp_path / "surface.json")
    sources = read([tmp_path])
    assert [figure.id for figure in all_figures(sources)] == ["surface", "surfaces"]
    assert "a 'noise' Finding whose numbers do not have the expected layout" in sources.notices[0]
    json.dumps(sources.notices)


def evaluated(tmp_path: Path) -> list[Any]:
    demo.evaluation(tmp_path / "a", "sft", 0.3)
    demo.evaluation(tmp_path / "a", "sft", 0.2, task="arc", ks=(1,))
    demo.evaluation(tmp_path / "b", "models/mine/model", 0.4)
    return read([tmp_path]).of("pass-at-k")


def test_evaluations_are_compared_on_each_task(tmp_path: Path) -> None:
    import vl_convert

    from ranktuner.report.figures import evaluation

    found = evaluated(tmp_path)
    assert evaluation.models_of(found) == ["sft", "mine"]
    flat, curves = evaluation.figures(found)
    assert ([p.title for p in flat.panels], [p.title for p in curves.panels]) == (["arc"], ["gsm8k"])
    known = {leaf for one in found for leaf in leaves(dict(one.finding.numbers))}
    for figure in (flat, curves):
        assert {x for panel in figure.panels for row in rows_of(panel.spec) for x in leaves(row)} <= known
        assert "sft" in vl_convert.vegalite_to_svg(paper_spec(figure))
    (_, first, _), (title, last, note) = evaluation.tables(found)
    assert list(first.head) == ["model", "arc", "gsm8k"]
    assert [row[0] for row in first.rows] == ["sft", "mine"]
    assert "20.0" in first.rows[0][1]
    assert 'class="none"' in first.rows[1][1], "mine was not evaluated on arc"
    assert title == "pass@16"
    assert "count as wrong" in note
    assert len(last.rows) == 2


def test_what_must_be_said_beside_an_evaluation_is_said(tmp_path: Path) -> None:
    from ranktuner.report.figures import evaluation
    from ranktuner.report.sources import Located

    demo.evaluation(tmp_path, "sft", 0.3)
    finding = Finding.load(tmp_path / "findings" / "pass-at-k-gsm8k.json")
    numbers = {**finding.numbers, "complete": False, "unfinished_problems": 3, "same_answers": 5}
    numbers["verdicts"] = {**numbers["verdicts"], "error": 2}
    changed = Finding("pass-at-k", "t", 10, numbers, finding.protocol)
    note = str(evaluation.tables([Located(changed, "x", "sft")])[-1][2])
    assert "sft on gsm8k is unfinished" in note
    assert "samples could not be graded" in note
    assert "is the seed ignored?" in note
