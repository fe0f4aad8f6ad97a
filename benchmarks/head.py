"""Time and peak memory of one forward and backward of the output head, against what a user would run otherwise.

    python benchmarks/head.py                    # all shapes and dtypes; stores benchmarks/results/head.json
    python benchmarks/head.py --only smollm2     # one shape; the stored cases of the others stay
    python benchmarks/head.py --device cuda --store benchmarks/results/head_h200.json
    python benchmarks/head.py --figure head.svg  # draws what is stored, measures nothing

Sides, taking turns in one process so that whatever else the machine does slows all alike (medians are compared):
- dense: transformers' own loss of a causal language model (plain SFT);
- paper: RankTuner as a paper's code would have it, from full logits with torch operations;
- trl: TRL 1.16's fused head computing its nll;
- ours: sft, dft, talr, eaft, ranktuner;
- products: the three matrix products alone, in the same chunks - nothing that gives these gradients can be faster.
A side whose package is not installed is left out, with a notice. Half masked: every second token is dropped before the
head, and the time of dropping counts.

Memory is the peak above what was held before the step: of the process (Linux), on a GPU of torch's allocator.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import ranktuner as rt
from ranktuner.findings import Finding, provenance
from ranktuner.kernels.products import Head, chunk_rows

RESULT = Path(__file__).parent / "results" / "head.json"
SHAPES = {
    # hidden size, vocabulary, supervised tokens
    "smollm2": (576, 49_152, 4096),
    "qwen2.5-1.5b": (1536, 151_936, 2048),
    "gemma3-270m": (640, 262_144, 2048),
}
TITLES = {"smollm2": "SmolLM2-135M", "qwen2.5-1.5b": "Qwen2.5-1.5B", "gemma3-270m": "Gemma-3-270M"}
HALF = "ours: ranktuner, half masked"
OURS = ["sft", "dft", "talr(tau=1)", "eaft", "ranktuner"]
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


# --- the sides --------------------------------------------------------------------------------------------------------


def dense(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    from transformers.loss.loss_utils import ForCausalLMLoss

    logits = F.linear(h, w)[None]
    return ForCausalLMLoss(logits, None, w.shape[0], shift_labels=y[None], num_items_in_batch=len(y))


def paper(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    logits = F.linear(h, w).float()
    ln_p = torch.log_softmax(logits, dim=-1)
    nll = -ln_p.gather(1, y[:, None])[:, 0]
    with torch.no_grad():
        p = ln_p.exp()
        bits = -(p * ln_p).sum(-1) / 0.6931471805599453
        rank = (logits >= logits.gather(1, y[:, None])).sum(-1).float()
        bound = torch.where(bits >= 2, torch.exp2(bits) / 4 + 1, 2 - p.amax(-1))
        k = torch.log2(torch.maximum(rank, bound) + 1) ** -2
        weight = torch.exp(k * (nll - bound.log()))
    return (weight * nll).sum() / len(y)


def trl_head(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    out = ChunkedLogProbFunction.apply(
        h, w, None, y, 1.0, _CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ("log_probs", "entropy", "is_top1")
    )
    return -out[0].sum() / len(y)


def ours(method: str, every: int = 1) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    chosen = rt.method(method)

    def loss(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
        how = IMPLEMENTATION[h.device.type]
        if every > 1:  # as `align.supervised` drops the masked tokens
            kept = torch.arange(0, len(h), every, device=h.device)
            h, y = h[kept], y[kept]
        return rt.fused_weighted_loss(h, w, y, chosen, implementation=how).loss

    return loss


def products(h: Tensor, w: Tensor, y: Tensor) -> None:
    """Logits, gradient of the hidden states, gradient of the head, into buffers that are there already."""
    n = chunk_rows(len(h), Head(w), None)
    h, w = h.detach(), w.detach()
    buffer, d_h, d_w = BUFFERS
    for i in range(0, len(h), n):
        part = h[i : i + n]
        logits = buffer[: len(part)]
        torch.mm(part, w.t(), out=logits)
        torch.mm(logits, w, out=d_h[i : i + n])
        torch.mm(logits.t(), part, out=d_w)


BUFFERS: tuple[Tensor, Tensor, Tensor]
IMPLEMENTATION = {"cpu": "compiled", "cuda": "auto"}
"""The row pass: on a CPU compiled from the first step, on a GPU what users get."""


# --- measuring ---------------------------------------------------------------------------------------------


def step(side: Callable[..., Any], h: Tensor, w: Tensor, y: Tensor) -> None:
    if side is products:
        products(h, w, y)
    else:
        torch.autograd.grad(side(h, w, y), [h, w])


def seconds(side: Callable[..., Any], *inputs: Tensor) -> float:
    if inputs[0].is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    step(side, *inputs)
    if inputs[0].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def sides() -> dict[str, Callable[..., Any]]:
    """Return every side that can run here."""
    found: dict[str, Callable[..., Any]] = {}
    for name, side, package in (("dense", dense, "transformers"), ("paper", paper, "torch"), ("trl", trl_head, "trl")):
        if importlib.util.find_spec(package):
            found[name] = side
        else:
            print(f"left out: {name} ({package} is not installed)")
    found |= {f"ours: {m}": ours(m) for m in OURS}
    return {**found, HALF: ours("ranktuner", every=2), "products": products}


def peak_bytes(side: Callable[..., Any], *inputs: Tensor) -> int | None:
    """Peak above what was held before; the kernel's own high-water mark is set back first."""
    gc.collect()
    if inputs[0].is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(side, *inputs)
        return torch.cuda.max_memory_allocated() - before
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    before = _status("VmRSS")
    step(side, *inputs)
    return _status("VmHWM") - before


def _status(field: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024


def measure(shape: str, dtype: str, repeats: int, device: str, only: list[str]) -> dict[str, Any]:
    global BUFFERS
    hidden_size, vocab, n = SHAPES[shape]
    torch.manual_seed(0)
    kind = DTYPES[dtype]
    w = (torch.randn(vocab, hidden_size) * 0.05).to(device, kind).requires_grad_()
    h = torch.randn(n, hidden_size).to(device, kind).requires_grad_()
    y = torch.randint(0, vocab, (n,), device=device)
    rows = chunk_rows(n, Head(w), None)
    todo = {name: side for name, side in sides().items() if name in (only or [name])}
    BUFFERS = (h.new_empty(rows, vocab), torch.empty_like(h).detach(), torch.empty_like(w).detach())
    for side in todo.values():  # warm: compiles, first touch of memory
        step(side, h, w, y)
    times: dict[str, list[float]] = {name: [] for name in todo}
    for _ in range(repeats):
        for name, side in todo.items():
            times[name].append(seconds(side, h, w, y))
    BUFFERS = (h.new_empty(0), h.new_empty(0), h.new_empty(0))  # not to be counted as held before
    memory = {name: peak_bytes(side, h, w, y) for name, side in todo.items() if side is not products}
    return {
        "shape": TITLES[shape],
        "hidden": hidden_size,
        "vocabulary": vocab,
        "tokens": n,
        "dtype": dtype,
        "chunk": rows,
        "seconds": {name: median(values) for name, values in times.items()},
        "seconds_all": times,
        "peak_bytes": memory,
        "ratios": ratios(times, memory),
    }


def ratios(times: dict[str, list[float]], memory: dict[str, int | None]) -> dict[str, float]:
    """Medians over repeats of the ratio within one repeat: neighbours in time, so load falls on both."""

    def over(one: str, other: str) -> float:
        return median(a / b for a, b in zip(times[one], times[other], strict=True))

    pairs = {
        "ranktuner / dense sft": ("ours: ranktuner", "dense"),
        "ranktuner / paper's way": ("ours: ranktuner", "paper"),
        "ranktuner / trl fused": ("ours: ranktuner", "trl"),
        "ranktuner / products": ("ours: ranktuner", "products"),
        "ranktuner / our sft": ("ours: ranktuner", "ours: sft"),
        "half masked / unmasked": (HALF, "ours: ranktuner"),
    }
    found = {name: over(*pair) for name, pair in pairs.items() if times.keys() >= set(pair)}
    if memory.get("dense") and "ours: ranktuner" in memory:
        found["peak memory / dense"] = (memory["ours: ranktuner"] or 0) / memory["dense"]
    return found


def show(case: dict[str, Any]) -> None:
    print(f"\n{case['shape']} ({case['hidden']} x {case['vocabulary']:,}), {case['tokens']} tokens, {case['dtype']}")
    for name, value in case["seconds"].items():
        peak = case["peak_bytes"].get(name)
        print(f"  {name:<30}{1000 * value:9.2f} ms" + (f"{peak / 2**20:10.0f} MiB" if peak else ""))
    for name, value in case["ratios"].items():
        print(f"    {name:<28}{value:8.3f}")


def hardware(device: str) -> dict[str, Any]:
    if device == "cuda":
        return {"device": torch.cuda.get_device_name()}
    cpu = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    name = cpu[0].split(":")[1].strip() if cpu else platform.processor()
    return {"cpu": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def kept(path: Path, machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases stored by an earlier run on the same machine with the same versions."""
    if not path.exists():
        return []
    old = Finding.load(path)
    same = old.provenance["hardware"] == machine and old.provenance["versions"] == provenance()["versions"]
    return list(old.numbers["cases"]) if same else []


def store(path: Path, cases: list[dict[str, Any]], repeats: int, device: str, machine: dict[str, Any]) -> None:
    """Save the cases, each shape and dtype once, in the order of SHAPES and DTYPES."""
    place = {(TITLES[s], d): (i, j) for i, s in enumerate(SHAPES) for j, d in enumerate(DTYPES)}
    latest = {(c["shape"], c["dtype"]): c for c in cases}
    finding = Finding(
        kind="benchmark-head",
        title="Forward and backward of the output head",
        n=repeats,
        numbers={"cases": [latest[key] for key in sorted(latest, key=place.__getitem__)]},
        protocol={
            "unit": "interleaved repeats of each case; medians",
            "row pass": IMPLEMENTATION[device],
            "labels": "random",
        },
        provenance=provenance(hardware=machine),
    )
    finding.save(path)


def draw(path: Path, to: Path) -> None:
    """Draw the stored times and peaks relative to dense plain SFT, one panel for each shape and dtype."""
    from ranktuner.report.figures.base import Figure, Panel, altair, data, panel
    from ranktuner.report.figures.theme import var
    from ranktuner.report.paper import write_figure
    from ranktuner.report.writing import sentence

    alt = altair()
    stored = Finding.load(path)
    names = {
        "dense": "plain SFT, dense",
        "paper": "RankTuner from full logits",
        "trl": "plain SFT, TRL's fused head",
        "ours: sft": "our sft",
        "ours: ranktuner": "our ranktuner",
    }

    def bars(case: dict[str, Any], what: str, title: str) -> Panel:
        base = case[what]["dense"]
        rows = [{"name": text, "share": case[what][name] / base} for name, text in names.items() if name in case[what]]
        chart = alt.Chart(data(rows)).encode(
            y=alt.Y("name:N", sort=list(names.values()), title=None, axis=alt.Axis(labelLimit=190)),
            x=alt.X("share:Q", title=title, axis=alt.Axis(tickCount=4), scale=alt.Scale(domainMin=0)),
        )
        ours = alt.condition("indexof(datum.name, 'our ') == 0", alt.value(var("c0")), alt.value(var("rule-2")))
        marks = chart.mark_bar(height={"band": 0.6}, cornerRadiusEnd=2).encode(color=ours)
        labels = chart.mark_text(align="left", dx=4, color=var("ink-2")).encode(text=alt.Text("share:Q", format=".2f"))
        heading = f"{case['shape']}, {case['tokens']:,} tokens, {case['dtype']}"
        return panel(heading, alt.layer(marks, labels), width=280, height=22 * len(rows) + 10)

    panels = []
    for case in stored.numbers["cases"]:
        panels.append(bars(case, "seconds", "time of forward and backward, dense = 1"))
        panels.append(bars(case, "peak_bytes", "peak memory, dense = 1"))
    write_figure(Figure("head", stored.title, sentence("{}", stored.title), panels), to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SHAPES, help="one shape")
    parser.add_argument("--dtype", choices=DTYPES, help="one dtype")
    parser.add_argument("--sides", nargs="+", default=[], metavar="SIDE", help="only these, such as dense products")
    parser.add_argument("--repeats", type=int, help="default: 5, on a GPU 30")
    parser.add_argument("--device", choices=IMPLEMENTATION, default="cpu")
    parser.add_argument("--store", type=Path, default=RESULT, help="the file of results; default: %(default)s")
    parser.add_argument("--no-store", action="store_true", help="print only")
    parser.add_argument("--figure", type=Path, metavar="FILE.svg", help="draw what is stored, measure nothing")
    arguments = parser.parse_args()
    if arguments.figure:
        draw(arguments.store, arguments.figure)
        return
    repeats = arguments.repeats or (30 if arguments.device == "cuda" else 5)
    machine = hardware(arguments.device)
    cases = kept(arguments.store, machine)
    for shape in [arguments.only] if arguments.only else SHAPES:
        for dtype in [arguments.dtype] if arguments.dtype else DTYPES:
            cases.append(measure(shape, dtype, repeats, arguments.device, arguments.sides))
            show(cases[-1])
            if not arguments.no_store:  # after each case: a run that is cut short keeps what it has
                store(arguments.store, cases, repeats, arguments.device, machine)
    if not arguments.no_store:
        print(f"\nstored in {arguments.store}")


if __name__ == "__main__":
    main()
