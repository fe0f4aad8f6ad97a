"""The parts of README.md and results.md that are made from stored results; what is not stored is left out.

Each part stands between `<!-- NAME -->` and `<!-- end of NAME -->`. To store the result of the demo, or of another
comparison as docs/results/NAME, where it ran:

    python DOCS/stored.py runs/demo demo
    python DOCS/stored.py runs/compare/NAME NAME
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ranktuner.findings import Finding

ROOT = Path(__file__).parents[1]
RESULTS, BENCHMARKS, IMAGES = ROOT / "docs" / "results", ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
FIGURE = "demo.svg"
Record = Mapping[str, Any]


def filled(text: str, parts: Mapping[str, str], page: str) -> str:
    """Return the page with each part between its marks."""
    for name, content in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            raise ValueError(f"{page}: expected {start} and {end} once each")
        head, rest = text.split(start)
        text = f"{head}{start}\n{content}{end}{rest.split(end)[1]}"
    return text


def readme() -> str:
    """Return README.md with what the demo printed, and the benchmarks' ratios."""
    parts = {"demo": demo_part(RESULTS / "demo"), "ratios": ratios_part(BENCHMARKS)}
    return filled((ROOT / "README.md").read_text(encoding="utf-8"), parts, "README.md")


def results_page() -> str:
    """Return docs/results.md with the tables of the stored comparisons."""
    parts = {name: run_part(RESULTS / name, head) for name, head in RUNS.items()}
    return filled((ROOT / "docs" / "results.md").read_text(encoding="utf-8"), parts, "docs/results.md")


# --- the demo ---------------------------------------------------------------------------------------------------------


def demo_part(folder: Path) -> str:
    """Return what `ranktuner demo` printed, how long it took, and the figure; nothing where it is not stored."""
    if not (folder / "comparison.json").exists():
        return ""
    printed = _printed(Finding.load(folder / "comparison.json"))
    lines = ["", "```", *printed, "```", ""]
    if (folder / "times.json").exists():
        lines += [*_wrapped(_times(Finding.load(folder / "times.json"))), ""]
    if (IMAGES / FIGURE).exists():
        lines += [
            f"![pass@k of the five models with 95 % intervals, and their paired differences](docs/images/{FIGURE})"
        ]
        lines += [""]
    return "\n".join(lines)


def _printed(finding: Finding) -> list[str]:
    from rich.console import Console

    from ranktuner.compare.printing import print_table

    text = io.StringIO()
    print_table(finding, Console(file=text, width=80, color_system=None, force_terminal=False))
    lines = [line.rstrip() for line in text.getvalue().strip("\n").splitlines()]
    return [part for line in lines for part in (textwrap.wrap(line, 100) if len(line) > 100 else [line])]


def _times(times: Finding) -> str:
    first, *again = times.numbers["calls"]
    hardware, versions = times.provenance["hardware"], times.provenance["versions"]
    text = f"The first run took {first['seconds'] / 60:.1f} minutes on {hardware['cores']} cores ({hardware['cpu']}, "
    text += f"torch {versions['torch']}, transformers {versions['transformers']})"
    return text + (f"; the second, from what was kept, {again[-1]['seconds']:.0f} seconds." if again else ".")


def draw(folder: Path = RESULTS / "demo") -> Path | None:
    """Write the front page's figure from the stored comparison; None where there is none."""
    source = folder / "comparison.json"
    if not source.exists():
        return None
    import vl_convert

    from ranktuner.report.figures.comparison import figures
    from ranktuner.report.paper import paper_spec

    scores, differences = figures(Finding.load(source))
    spec = paper_spec(scores)
    spec["concat"] = [*paper_spec(scores)["concat"], *paper_spec(differences)["concat"]]
    spec["columns"] = 3
    svg = vl_convert.vegalite_to_svg(spec)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / FIGURE
    path.write_text(f"<!-- {digest(source)} -->\n{svg}\n", encoding="utf-8")
    return path


def digest(source: Path) -> str:
    """Return what a figure says it was drawn from: the fonts of a machine change its bytes, not this."""
    return f"drawn from {source.name}, sha256 {hashlib.sha256(source.read_bytes()).hexdigest()}"


def stale_figure(folder: Path = RESULTS / "demo") -> bool:
    """Return whether the stored figure was drawn from another result than the stored one."""
    source, path = folder / "comparison.json", IMAGES / FIGURE
    return source.exists() and (not path.exists() or digest(source) not in path.read_text(encoding="utf-8"))


def store(run: Path, folder: Path) -> None:
    """Keep the Findings of a comparison, and what its trainings came to and its answers look like."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*(run / "findings").glob("*.json"), *run.glob("times.json")]:
        shutil.copy(path, folder / path.name)
    answers(run).save(folder / "answers.json")


def answers(run: Path) -> Finding:
    """Count in the samples of the generated problems who took up the solutions' form; seeds are taken together."""
    from ranktuner.findings import provenance

    rows: dict[str, dict[str, list[Any]]] = {}
    for cell in json.loads((run / "compare.json").read_text(encoding="utf-8"))["cells"]:
        place, row = Path(cell["folder"]), rows.setdefault(cell["label"], {"texts": [], "first": [], "last": []})
        if cell["stage"] == "eval" and (place / "samples" / "problems.jsonl").exists():
            lines = _lines_of(place / "samples" / "problems.jsonl")
            row["texts"] += [line["text"] for line in lines if "text" in line]
        elif cell["stage"] == "train":
            steps = [line["nll"] for line in _lines_of(place / "run" / "metrics.jsonl")]
            row["first"].append(steps[0])
            row["last"].append(fmean(steps[-LAST:]))
    found = [_form(label, row) for label, row in rows.items() if row["texts"]]
    n = sum(row["samples"] for row in found)
    protocol = {"unit": "sample", "nll_last": f"mean of the last {LAST} steps, over all trainings of the row"}
    return Finding("answer-forms", "The form of the answers", n, {"rows": found}, protocol, provenance())


def _form(label: str, row: Mapping[str, list[Any]]) -> dict[str, Any]:
    texts = row["texts"]
    form = {"label": label, "samples": len(texts), "boxed": sum("\\boxed{" in text for text in texts)}
    form["empty"] = sum("\\boxed{}" in text for text in texts)
    return form | ({"nll_first": fmean(row["first"]), "nll_last": fmean(row["last"])} if row["first"] else {})


LAST = 5
"""Steps whose plain nll is averaged: single batches are small."""


def _lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def answers_part(folder: Path) -> str:
    """Return who took up the form of the solutions; nothing where it is not stored."""
    path = folder / "answers.json"
    if not path.exists():
        return ""
    head = ["row", "plain nll, first step", f"mean of the last {LAST}", "answers with a `\\boxed{}`", "of these empty"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in Finding.load(path).numbers["rows"]:
        nll = [f"{row[key]:.2f}" if key in row else "" for key in ("nll_first", "nll_last")]
        lines.append(_line([f"`{row['label']}`", *nll, f"{row['boxed']} of {row['samples']}", str(row["empty"])]))
    return "\n".join([*lines, ""]) + "\n"


# --- comparisons ------------------------------------------------------------------------------------------------------


def comparison_part(folder: Path) -> str:
    """Return every table of a stored comparison; nothing where it is not stored."""
    path = folder / "comparison.json"
    if not path.exists():
        return ""
    finding = Finding.load(path)
    lines = [""]
    for table in finding.numbers["tables"]:
        lines += [*_markdown(table), ""]
    for one in finding.numbers["failed"]:
        lines += [f"Failed: {one['label']} at {one['stage']}: {one['error']}", ""]
    link = path.relative_to(ROOT / "docs").as_posix()
    versions = finding.provenance["versions"]
    made = f"torch {versions['torch']}, transformers {versions['transformers']}"
    lines += [*_wrapped(f"95 % intervals over problems; `~` where the interval includes 0 ([stored]({link}); {made}).")]
    return "\n".join([*lines, ""]) + "\n"


RUNS = {
    "demo": "",
    "larger": """
## The larger run

[Its recipe](results/larger/recipe.toml): the same model, trained for 64 steps on 384 generated problems of one or two
steps of arithmetic and 128 GSM8K rows, in bf16, at one learning rate for all: {rows} methods with {seeds} trainings
each, {samples:,} graded samples in all.
""",
    "longer": """
## Eight times the steps

[Its recipe](results/longer/recipe.toml): the larger run's with 1,536 problems and 512 GSM8K rows, for two epochs, 512
steps, on one H200 GPU: {rows} methods with one training each, {samples:,} graded samples.
""",
    "words": """
## Asked in other words

[Its recipe](results/words/recipe.toml): the same 512 steps on the same rows, whose questions now end where the question
ends; the tasks ask with the words of the mathematics protocol as before. {rows} methods with {seeds} trainings each,
{samples:,} graded samples, on one H200 GPU.
""",
}
"""Stored comparison -> the head of its section."""


def run_part(folder: Path, head: str) -> str:
    """Return the section of a stored comparison; nothing where it is not stored."""
    tables = comparison_part(folder)
    if not tables:
        return ""
    rows = [row for t in Finding.load(folder / "comparison.json").numbers["tables"] for row in t["rows"]]
    trained = {row["label"] for row in rows} - {"original"}
    counts = {"rows": len(trained), "seeds": max(len(row["seeds"]) for row in rows)}
    return head.format(**counts, samples=sum(row["samples"] for row in rows)) + tables + answers_part(folder)


def _markdown(table: Record) -> Iterator[str]:
    several = any(len(row["seeds"]) > 1 for row in table["rows"])
    yield f"{table['model']} on {table['task']}, {table['problems']:,} problems:"
    yield ""
    ks = table["ks"] if len(table["ks"]) < 4 else [table["k"], table["ks"][-1]]
    head = ["row", *(f"pass@{k}" for k in ks), *(["between seeds"] if several else [])]
    head += [f"pass@{table['k']} over the original", "over the best other", "truncated, no answer"]
    yield _line(head)
    yield _line(["---"] * len(head))
    for row in table["rows"]:
        by_k = {at["k"]: at for at in row["pass_at_k"]}
        cells = [f"`{row['label']}`", *(_score(by_k.get(k)) for k in ks)]
        if several:
            deviation = by_k.get(table["k"], {}).get("seed_deviation")
            cells.append("" if deviation is None else f"± {100 * deviation:.1f}")
        cells += [_difference(row["to_original"], table["k"]), _difference(row["to_best"], table["k"], names=True)]
        counted = row["verdicts"]
        cells.append(f"{counted['truncated']:,}, {counted['unparsed']:,} of {row['samples']:,}")
        yield _line(cells)


def _score(at: Record | None) -> str:
    if at is None or at["value"] is None:
        return "-"
    return f"{100 * at['value']:.1f} % ({100 * at['low']:.1f} to {100 * at['high']:.1f})"


def _difference(found: Sequence[Record], k: int, names: bool = False) -> str:
    one = next((one for one in found if one["k"] == k), None)
    if one is None:
        return ""
    mark = "~" if one["low"] <= 0 <= one["high"] else ""
    text = f"{mark}{100 * one['value']:+.1f} ({100 * one['low']:+.1f} to {100 * one['high']:+.1f})"
    return f"{text}, `{one['to']}`" if names else text


# --- ratios -----------------------------------------------------------------------------------------------------------


def ratios_part(folder: Path) -> str:
    """Return a table of the stored benchmarks that are there."""
    rows = [row for name, make in RATIOS.items() if (path := folder / name).exists() for row in make(_load(path), name)]
    if not rows:
        return ""
    head = ["what", "against", "", "measured on"]
    said = "What it costs, as ratios of stored measurements, both sides of each on the same machine:"
    return "\n".join(["", said, "", _line(head), _line(["---"] * 4), *(_line(row) for row in rows), "", ""])


def _load(path: Path) -> Record:
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


def _head(found: Record, name: str) -> Iterator[list[str]]:
    """One line for each shape and precision."""
    link = f"[{_machine(found['provenance']['hardware'])}](benchmarks/results/{name})"
    for case in found["numbers"]["cases"]:
        ratios = case["ratios"]
        memory = ratios.get("peak memory / dense")
        said = f"{ratios['ranktuner / dense sft']:.2f} x the time"
        said += f", {memory:.2f} x the peak memory" if memory is not None else ""
        yield [f"RankTuner's output head, {case['shape']}, {case['dtype']}", "plain SFT with whole logits", said, link]


def _training(found: Record, name: str) -> Iterator[list[str]]:
    link = f"[{_machine(found['hardware'])}](benchmarks/results/{name})"
    others = {
        "trl": "TRL's SFTTrainer as it comes",
        "trl-same": "TRL's SFTTrainer, same batches",
        "dense": "a plain loop with whole logits",
        "sft": "our own plain SFT",
    }
    for key, text in others.items():
        if (pair := found["against"].get(key)) is not None:
            memory = pair["share_of_peak_memory"]
            said = f"{pair['times_as_fast_by_clock']:.2f} x the tokens a second, {memory:.2f} x the peak memory"
            mine = "ranktuner" if key == "sft" else "sft"
            yield [f"training {found['settings']['model']} by `{mine}`, fp32", text, said, link]


def _generator(found: Record, name: str) -> Iterator[list[str]]:
    link = f"[{_machine(found['machine'])}](benchmarks/results/{name})"
    yield [
        "answers of an evaluation",
        "a loop over `generate`",
        f"{found['ratio_samples_per_second']:.1f} x the samples a second",
        link,
    ]


def _expected_rank(found: Record, name: str) -> Iterator[list[str]]:
    times = [one["times_faster"] for one in found["numbers"].values() if isinstance(one, dict)]
    link = f"[{found['provenance']['processor']}, {found['provenance']['threads']} threads](benchmarks/results/{name})"
    yield ["expected rank of every row", "`torch.sort`", f"{min(times):.0f} to {max(times):.0f} x as fast", link]


RATIOS: dict[str, Callable[[Record, str], Iterator[list[str]]]] = {
    "head.json": _head,
    "head_h200.json": _head,
    "train_vs_trl.json": _training,
    "generator.json": _generator,
    "expected_rank.json": _expected_rank,
}
"""Stored benchmark -> its lines."""


def _machine(hardware: Record) -> str:
    gpu = hardware.get("device")
    if gpu and gpu != "cpu":
        return str(gpu)
    return f"{hardware.get('cpu', 'CPU')}, {hardware.get('cores') or hardware.get('threads')} cores"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def marks(text: str) -> list[str]:
    """Return the names of a page's parts."""
    return re.findall(r"<!-- end of (\w+) -->", text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    store(Path(sys.argv[1]), RESULTS / sys.argv[2])
