"""A made-up project to report on: two runs and a Finding of every kind, from synthetic numbers as documented."""

from __future__ import annotations

import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ranktuner.findings import Finding

PROVENANCE = {
    "versions": {"python": "3.11", "ranktuner": "0.1.0"},
    "machine": "Linux x86_64",
    "command": "ranktuner diagnose noise runs/demo",
    "time": "2026-01-01T00:00:00+00:00",
    "tables": [
        {"name": "gsm8k", "model": "demo", "data": ["gsm8k.jsonl"], "data_fingerprint": "ab12", "tokens": 20000}
    ],
}

TEXTS = [
    (
        "17",
        "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many "
        "clips did Natalia sell altogether in April and May?",
        "Natalia sold 48 / 2 = 24 clips in May.\nNatalia sold 48 + 24 = 72 clips altogether in April and May.\nThe "
        "answer is 72.",
    ),
    (
        "18",
        "Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes. How much did she earn?",
        "She earns 12 / 60 = $0.2 a minute. The committee has essentially postponed its decision on the harbour until "
        "spring. Working 50 minutes, she earned 0.2 x 50 = $10.",
    ),
    ("emoji", "Say it with emoji.", "Family 👨‍👩‍👧 and a flag 🇨🇭, a thumb 👍🏽, a heart ❤️ and naïve cafe\u0301s 🙂."),
    ("rtl", "ترجم", "Hello is مرحبا بالعالم and שלום עולם in two scripts; 世界 is the world."),
    (
        "hostile",
        "</script><script>window.pwned=1</script>",
        "<img src=x onerror=window.pwned=2> & <b>bold</b>\x00\x1b[31m \u202eevil\u202c \ud800 end",
    ),
    ("code", "Write a function.", "def add(a, b):\n\treturn a + b\n\n# ```python``` and {{ 7*7 }} {% if %}"),
]


def tokenize(text: str) -> list[str]:
    """Words with their space, and every character outside Latin as parts: `""` until the last byte completes it."""
    pieces: list[str] = []
    for word in re.findall(r" ?[A-Za-z]+| ?\d|\s|.", text, re.S):
        if len(word) == 1 and ord(word) > 0x2000:
            pieces += [""] * (len(word.encode("utf-8", "replace")) - 1)
        pieces.append(word)
    return pieces


def signals(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Consistent signals of tokens drawn from geometric-like distributions with a random temperature."""
    vocabulary = 2000
    sharp = rng.lognormal(0.2, 1.2, count)
    logits = -sharp[:, None] * np.log1p(np.arange(vocabulary))[None, :] * 1.6
    q = np.exp(logits - logits.max(1, keepdims=True))
    q /= q.sum(1, keepdims=True)
    rank = np.minimum(np.where(rng.random(count) < 0.7, 1, rng.geometric(0.12, count)), 800)
    p = q[np.arange(count), rank - 1]
    entropy = -(q * np.log2(np.maximum(q, 1e-300))).sum(1)
    expected = (q * np.arange(1, vocabulary + 1)).sum(1)
    s = np.where(entropy >= 2, 2**entropy / 4 + 1, 2 - q[:, 0])
    k = np.log2(np.maximum(rank, s) + 1) ** -2
    indicator = 2 ** (1 / np.log2(1 + rank) - 1 / np.log2(1 + expected))
    return {
        "p": p,
        "nll": -np.log(p),
        "rank": rank,
        "entropy_bits": entropy,
        "p_max": q[:, 0],
        "expected_rank": expected,
        "s": s,
        "k": k,
        "indicator": indicator,
    }


def weights(v: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    scale = (v["p"] * v["s"]) ** -v["k"]
    return {"sft": np.ones_like(v["p"]), "dft": v["p"], "ranktuner(prior=prob)": v["p"] * scale}


def summary(mean: float, spread: float, count: int = 3) -> dict[str, Any]:
    values = [round(mean + spread * d, 6) for d in np.linspace(-1, 1, count)]
    return {"mean": mean, "low": round(mean - 1.5 * spread, 6), "high": round(mean + 1.5 * spread, 6), "values": values}


def noise() -> Finding:
    def score(name: str, label: str, kind: str, recall: float, hit: float) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "kind": kind,
            "token_recall": summary(recall, 0.02),
            "token_precision": summary(recall / 5.9, 0.003),
            "sequence_hit": summary(hit, 0.04),
            "sequence_hits": [19, 18.5, 19],
        }

    scores = [
        score("entropy", "entropy H", "score", 0.593, 0.95),
        score("probability", "−ln p", "score", 0.421, 0.9),
        score("inverse-indicator", "1/I", "score", 0.168, 0.2),
        score("sft", "sft", "weight", 0.101, 0.1),
        score("dft", "dft", "weight", 0.034, 0.05),
        score("ranktuner(prior=prob)", "ranktuner(prior=prob)", "weight", 0.041, 0.06),
    ]
    numbers = {
        "scores": scores,
        "by_seed": [{"seed": 0, "rows": 200, "corrupted": 20, "tokens": 24000, "noise_tokens": 400}],
        "chance": {"token_recall": 0.1, "token_precision": 0.0171, "sequence_hit": 0.1},
    }
    protocol = {
        "unit": "tokens",
        "corruption_ratio": 0.1,
        "top": 0.1,
        "seeds": [0, 1, 2],
        "rows": 200,
        "interval": "t over seeds, 95 %",
    }
    return Finding("noise", "Noise on GSM8K", 72000, numbers, protocol, PROVENANCE)


def histogram(values: np.ndarray, edges: np.ndarray) -> dict[str, Any]:
    return {"edges": [float(e) for e in edges], "counts": [int(c) for c in np.histogram(values, edges)[0]]}


def grid(x: np.ndarray, y: np.ndarray, xe: np.ndarray, ye: np.ndarray) -> list[list[int]]:
    return [[int(c) for c in line] for line in np.histogram2d(x, y, [xe, ye])[0]]


def tightness() -> Finding:
    rng = np.random.default_rng(1)
    v = signals(rng, 4000)

    def gap(name: str, label: str, values: np.ndarray) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "mean": float(values.mean()),
            "median": float(np.median(values)),
            "std": float(values.std()),
            "p80": float(np.quantile(values, 0.8)),
            "p90": float(np.quantile(values, 0.9)),
            "min": float(values.min()),
            "max": float(values.max()),
            "histogram": histogram(values, np.linspace(0, 1, 41)),
        }

    re_, pe = np.geomspace(1, 1024, 21), np.linspace(0, 1, 26)
    he, ee = np.linspace(0, 11, 34), np.geomspace(1, 1100, 25)
    some = slice(0, 1200)
    one = {
        "name": "gsm8k",
        "tokens": 4000,
        "gaps": [
            gap("rank", "1/R - p", 1 / v["rank"] - v["p"]),
            gap("expected_rank", "1/s - 1/E[R]", 1 / v["s"] - 1 / v["expected_rank"]),
        ],
        "bounds": [
            {"name": name, "tokens": 4000, "violations": 0, "worst": -1.5e-9, "tolerance": 1e-6}
            for name in ("p <= 1/R", "s(H) <= E[R]", "2 - h^-1(H) <= E[R] (H < 2)", "surrogate I <= I")
        ],
        "rank_p": {
            "x": "rank",
            "y": "p",
            "x_edges": list(re_),
            "y_edges": list(pe),
            "counts": grid(v["rank"], v["p"], re_, pe),
        },
        "entropy_expected_rank": {
            "x": "entropy_bits",
            "y": "expected_rank",
            "x_edges": list(he),
            "y_edges": list(ee),
            "counts": grid(v["entropy_bits"], v["expected_rank"], he, ee),
        },
        "points": {key: [float(x) for x in v[key][some]] for key in ("p", "rank", "entropy_bits", "expected_rank")},
    }
    ranks = np.geomspace(1, 1024, 60)
    h = np.linspace(0, 11, 60)
    envelopes = {
        "rank_p": {"rank": list(ranks), "p": list(1 / ranks)},
        "entropy_expected_rank": {
            "entropy_bits": list(h),
            "lower": [float(max(1, 2**x / 4 + (x >= 2))) for x in h],
            "upper": None,
        },
    }
    return Finding(
        "tightness", "Tightness on GSM8K", 4000, {"sets": [one], "envelopes": envelopes}, {"unit": "tokens"}, PROVENANCE
    )


QUADRANTS = {
    "sure and right": ("low", "high"),
    "sure and wrong": ("low", "low"),
    "unsure and right": ("high", "high"),
    "unsure and wrong": ("high", "low"),
}


def quadrant_masks(v: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    low, right = v["entropy_bits"] < 2, v["p"] >= 0.5
    return {
        "sure and right": low & right,
        "sure and wrong": low & ~right,
        "unsure and right": ~low & right,
        "unsure and wrong": ~low & ~right,
    }


def regimes() -> Finding:
    sets = []
    for seed, name in ((1, "gsm8k"), (2, "math-500")):
        v = signals(np.random.default_rng(seed), 3000)
        low, w = v["entropy_bits"] < 2, weights(v)
        share = {m: x / x.sum() for m, x in w.items()}
        sets.append(
            {
                "name": name,
                "tokens": 3000,
                "low": {"tokens": float(low.mean()), "nll": float(v["nll"][low].sum() / v["nll"].sum())},
                "high": {"tokens": float((~low).mean()), "nll": float(v["nll"][~low].sum() / v["nll"].sum())},
                "mean_entropy_bits": float(v["entropy_bits"].mean()),
                "mean_nll": float(v["nll"].mean()),
                "weights": [
                    {
                        "method": m,
                        "low": float(x[low].sum()),
                        "high": float(x[~low].sum()),
                        "mean_low": float(w[m][low].mean()),
                        "mean_high": float(w[m][~low].mean()),
                        "effective_tokens": float(w[m].sum() ** 2 / (3000 * (w[m] ** 2).sum())),
                    }
                    for m, x in share.items()
                ],
                "quadrants": [
                    {
                        "name": q,
                        "entropy": QUADRANTS[q][0],
                        "p": QUADRANTS[q][1],
                        "tokens": float(mask.mean()),
                        "weights": {m: float(x[mask].sum()) for m, x in share.items()},
                    }
                    for q, mask in quadrant_masks(v).items()
                ],
            }
        )
    return Finding(
        "regimes", "Regimes", 6000, {"border_bits": 2.0, "border_p": 0.5, "sets": sets}, {"unit": "tokens"}, PROVENANCE
    )


def gradients() -> Finding:
    p = np.linspace(0.005, 0.995, 80)
    shapes = [
        {"name": "sft", "family": "p only", "at": None, "p": list(p), "w": [1.0] * 80, "gradient": list(1 - p)},
        {"name": "dft", "family": "p only", "at": None, "p": list(p), "w": list(p), "gradient": list(p * (1 - p))},
        {
            "name": "alpha-power",
            "family": "p only",
            "at": None,
            "p": list(p),
            "w": list(p**0.5),
            "gradient": list(p**0.5 * (1 - p)),
        },
    ]
    for h in (0.5, 2.0, 5.0):
        s = 2**h / 4 + 1 if h >= 2 else 1.1
        w = p * (p * s) ** -(math.log2(s + 1) ** -2)
        shapes.append(
            {
                "name": "ranktuner",
                "family": "p and H",
                "at": {"entropy_bits": h},
                "p": list(p),
                "w": list(w),
                "gradient": list(w * (1 - p)),
            }
        )
    v = signals(np.random.default_rng(3), 3000)
    pe, he = np.linspace(0, 1, 21), np.linspace(0, 11, 23)

    def share(w: np.ndarray) -> list[list[float]]:
        table = np.histogram2d(v["p"], v["entropy_bits"], [pe, he], weights=w)[0]
        return [[float(c) for c in line] for line in table / table.sum()]

    masses = {m: w * (1 - v["p"]) for m, w in weights(v).items()}
    methods = [
        {
            "name": m,
            "share": share(x),
            "quadrants": {q: float(x[mask].sum() / x.sum()) for q, mask in quadrant_masks(v).items()},
        }
        for m, x in masses.items()
    ]
    plane = {"p_edges": list(pe), "entropy_edges": list(he), "tokens": share(np.ones(3000)), "methods": methods}
    return Finding("gradients", "Gradients", 3000, {"shapes": shapes, "plane": plane}, {"unit": "tokens"}, PROVENANCE)


def surface() -> Finding:
    axis = np.geomspace(1, 256, 33)
    f = {
        "1/log2(1+x)": lambda x: 1 / np.log2(1 + x),
        "-log2(1+x)": lambda x: -np.log2(1 + x),
        "(1+x)^-1/2": lambda x: (1 + x) ** -0.5,
    }
    surfaces = [
        {"f": name, "g": "2^x", "indicator": [[float(2 ** (fn(r) - fn(e))) for e in axis] for r in axis]}
        for name, fn in f.items()
    ]
    numbers = {"rank": list(axis), "expected_rank": list(axis), "surfaces": surfaces}
    return Finding("surface", "Indicator surface", 33 * 33, numbers, {"unit": "grid points"}, PROVENANCE)


def inference_entropy() -> Finding:
    models = []
    for name, mean in (("sft", 0.62), ("ranktuner(prior=prob)", 0.41)):
        counts = [int(30000 * math.exp(-i * (0.5 if name == "sft" else 0.7))) for i in range(24)]
        models.append(
            {
                "name": name,
                "entropy_bits": summary(mean, 0.02, 8),
                "high_share": summary(mean / 8, 0.003, 8),
                "nll": summary(mean / 2, 0.01, 8),
                "samples": 400,
                "tokens": 50123,
                "truncated": 12,
                "histogram": {"edges": [i / 4 for i in range(25)], "counts": counts},
            }
        )
    protocol = {
        "unit": "generated tokens",
        "runs": 8,
        "temperature": 0.2,
        "scored_at_temperature": 1.0,
        "interval": "bootstrap, 95 %",
    }
    return Finding("inference-entropy", "Inference entropy", 100246, {"models": models}, protocol, PROVENANCE)


def tokens(repeat: int = 1) -> Finding:
    rows: list[dict[str, Any]] = []
    for again in range(repeat):
        for name, prompt, text in TEXTS:
            pieces = tokenize(text)
            v = signals(np.random.default_rng(len(rows) + 7), len(pieces))
            ends = np.cumsum([len(piece) for piece in pieces])
            columns = {key: [float(x) if key != "rank" else int(x) for x in values] for key, values in v.items()}
            worst = [i for i in np.argsort(v["indicator"]) if v["rank"][i] > v["expected_rank"][i]][
                : max(1, len(pieces) // 20)
            ]
            rows.append(
                {
                    "id": name if repeat == 1 else f"{name}-{again}",
                    "prompt": prompt,
                    "text": text,
                    "tokens": {
                        "text": pieces,
                        "start": [int(e) - len(t) for e, t in zip(ends, pieces, strict=True)],
                        "end": [int(e) for e in ends],
                        **columns,
                        "weights": {m: [float(x) for x in w] for m, w in weights(v).items()},
                    },
                    "under_learned": [int(i) for i in worst],
                }
            )
    numbers = {
        "methods": ["sft", "dft", "ranktuner(prior=prob)"],
        "rows": rows,
        "ranges": {},
        "of_rows": 200,
        "of_tokens": 20000,
    }
    return Finding(
        "tokens", "Tokens", sum(len(r["tokens"]["text"]) for r in rows), numbers, {"unit": "tokens"}, PROVENANCE
    )


def inspect_data() -> Finding:
    rows = []
    for place, (name, prompt, text) in enumerate(TEXTS[1:5], start=1):
        start = min(40, len(text) // 2)
        rows.append(
            {
                "place": place,
                "id": name,
                "score": 9.3 / place,
                "reason": "a passage the rest of the row does not lead to",
                "traces": {"passage": 9.3 / place, "ending": 0.4},
                "tokens": len(tokenize(text)),
                "mean_nll": 1.41,
                "mean_entropy_bits": 1.93,
                "sure_and_wrong": 0.081,
                "prompt": prompt,
                "text": text,
                "span": {
                    "start": start,
                    "end": start + 12,
                    "text": text[start : start + 12],
                    "tokens": 3,
                    "mean_nll": 4.1,
                    "mean_entropy_bits": 3.0,
                },
                "worst_token": {
                    "start": start,
                    "end": start + 4,
                    "text": text[start : start + 4],
                    "p": 0.0001,
                    "rank": 900,
                    "expected_rank": 1.32,
                    "entropy_bits": 0.41,
                },
            }
        )
    planted = {
        "kinds": [
            {
                "kind": "inserted sentence",
                "rows": 200,
                "planted": 20,
                "row_precision": 0.9,
                "row_recall": 0.9,
                "span_precision": 0.81,
                "span_recall": 0.72,
                "auc": 0.983,
            }
        ]
    }
    numbers = {
        "rows": rows,
        "of_rows": 200,
        "score_quantiles": {"p50": 1.2, "p90": 3.0, "p99": 8.0},
        "planted": planted,
    }
    return Finding("inspect-data", "Suspicious rows", 200, numbers, {"unit": "rows"}, PROVENANCE)


def run(folder: Path, method: str, seed: int, steps: int = 120) -> Path:
    """A finished training run."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    plain = method == "sft"
    lines = []
    for step in range(1, steps + 1):
        wave = float(rng.normal(0, 0.015))
        nll = 0.62 + 0.7 * math.exp(-step / 25) + wave
        record = {
            "step": step,
            "loss": nll if plain else 0.31 + 0.2 * math.exp(-step / 30) + wave / 2,
            "nll": nll + (0 if plain else 0.03),
            "weight_mean": 1.0 if plain else 0.71,
            "weight_max": 1.0 if plain else 1.92,
            "effective_tokens": 1.0 if plain else 0.74 + wave,
            "k_mean": None if plain else 0.81 + wave / 4,
            "entropy_bits_mean": 1.3 * math.exp(-step / 90) + 0.4 + wave,
            "high_entropy_share": 0.18 - step / 1500 + wave / 9,
            "top1": 0.7 + step / 1200 + wave,
            "tokens": 31000 + step,
            "tokens_per_s": 410.5 + wave,
            "learning_rate": 5e-5 * (1 - step / (steps + 1)),
            "grad_norm": 1.1 + 4 * wave,
            "clipped": 0.02,
        }
        if step % 40 == 0:
            record["eval_nll"] = nll + 0.05
        lines.append(json.dumps(record))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    config = {
        "outcome": "finished",
        "config": {"method": method, "learning_rate": 5e-5, "seed": seed},
        "versions": {"torch": "2.13.0"},
        "data": {"train.jsonl": "sha256:ab12"},
        "git": {"commit": "0123abc", "dirty": False},
    }
    (folder / "run.json").write_text(json.dumps(config))
    return folder


def evaluation(
    folder: Path, model: str, share: float, task: str = "gsm8k", ks: tuple[int, ...] = (1, 2, 4, 8, 16)
) -> Path:
    """A finished evaluation: its run.json and both Findings of one task."""
    rng = np.random.default_rng(len(model))
    rows = []
    for k in ks:
        value = float(1 - (1 - share) ** (k**0.6))
        rows.append(
            {"k": k, "value": value, "standard_error": 0.013, "low": value - 0.025, "high": min(1.0, value + 0.025)}
        )
    solutions = [
        ("correct", "6 * 7 = 42\nThe answer is \\boxed{42}.", "42", "equal as numbers"),
        (
            "wrong",
            "Let me <b>think</b>. </script><script>window.pwned=3</script>\nThe answer is 41.",
            "41",
            "41 is not 42",
        ),
        ("unparsed", "I cannot say. \u202eesrever", None, "no boxed answer and no last number"),
        ("truncated", "```python\ndef answer():\n    return 42\n```", None, "the limit of new tokens was hit"),
    ]
    samples = []
    for place in range(40):
        verdict, text, answer, why = solutions[int(rng.integers(4))]
        samples.append(
            {
                "problem": f"{place // 4}",
                "index": place % 4,
                "seed": 7 + place,
                "text": text,
                "finish": "stop",
                "tokens": 31,
                "verdict": verdict,
                "answer": answer,
                "why": why,
            }
        )
    verdicts = dict.fromkeys(("correct", "wrong", "unparsed", "truncated", "timeout", "error"), 0)
    for sample in samples:
        verdicts[sample["verdict"]] += 1
    numbers = {
        "task": task,
        "pass_at_k": rows,
        "not_measured": [],
        "samples": 40,
        "n": 4,
        "n_least": 4,
        "n_most": 4,
        "complete": True,
        "unfinished_problems": 0,
        "problems_without_samples": 0,
        "verdicts": verdicts,
        "truncated": verdicts["truncated"],
        "tokens": {"mean": 31.4, "median": 30.0, "most": 64, "sum": 1256},
        "same_answers": 0,
        "problems": [],
    }
    protocol = {"unit": "problem", "interval": "bootstrap", "model": model, "decoding": {"temperature": 1.0}}
    Finding("pass-at-k", f"{task}: pass@k", 10, numbers, protocol, PROVENANCE).save(
        folder / "findings" / f"pass-at-k-{task}.json"
    )
    problems = {f"{i}": {"prompt": f"What is 6 * 7? Problem {i} & <i>others</i>", "gold": "42"} for i in range(10)}
    browse = {"task": task, "found": 400, "shown": 40, "problems": problems, "samples": samples}
    Finding("samples", f"{task}: samples", 40, browse, {"unit": "sample"}, PROVENANCE).save(
        folder / "findings" / f"samples-{task}.json"
    )
    (folder / "run.json").write_text(json.dumps({"tasks": {task: {"n": 4}}, "model": model}))
    return folder


COMPARED = {
    # Row -> problem i has this many of 8 samples right; two trainings where there are two lists.
    "original": [[0, 0, 1, 0, 2, 0, 0, 1, 0, 0, 3, 0]],
    "sft": [[4, 2, 5, 1, 8, 0, 3, 6, 2, 1, 7, 4], [5, 1, 6, 0, 7, 1, 4, 6, 1, 2, 8, 3]],
    "dft": [[3, 1, 5, 0, 8, 0, 2, 7, 1, 0, 8, 3]],
    "Ours": [[6, 2, 7, 1, 8, 1, 5, 8, 3, 2, 8, 6], [5, 3, 8, 2, 8, 0, 4, 8, 2, 1, 8, 7]],
}
PAPER_FILE = """
title = "The paper & its <tables>"
source = "arXiv"
[[table]]
id = "main"
model = "org/tiny-model"
columns = ["gsm8k pass@1"]
rows = [
  {label = "SFT", method = "sft", values = [31.4]},
  {label = "Ours", method = "ranktuner(prior=prob)", values = [38.2]},
]
"""


def compared(folder: Path, tasks: tuple[str, ...] = ("gsm8k",), ks: tuple[int, ...] = (1, 4, 8)) -> Finding:
    """A comparison as `ranktuner compare` makes it: one row failed whole, one for a seed; a paper beside it."""
    from ranktuner.compare.outcome import Evaluated, Failed, comparison
    from ranktuner.compare.recipe import make_recipe
    from ranktuner.evals.records import Grade, Problem, Sample
    from ranktuner.evals.results import Outcome, pass_at_k_finding

    model = "org/tiny-model"
    recipe = make_recipe(
        {
            "name": "mine",
            "title": "Four ways to weigh a token",
            "paper": "paper.toml",
            "models": [model],
            "methods": ["sft", "dft", {"method": "ranktuner(prior=prob)", "label": "Ours"}, "talr"],
            "seeds": [0, 1],
            "train": {"data": {"source": ["x.jsonl"]}},
            "eval": {"tasks": list(tasks), "n": 8, "k": list(ks)},
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.toml").write_text(PAPER_FILE)
    recipe._folder = folder
    cells = []
    for label, lists in COMPARED.items():
        for seed, right in enumerate(lists):
            place = folder / f"{label}-{seed}"
            cells.append(Evaluated(model, label, None if label == "original" else seed, place))
            for task in tasks:
                samples = [
                    Sample(task, f"p{i}", j, 0, "x", "stop", 30, "", {}, "") for i in range(12) for j in range(8)
                ]
                grades = {
                    (s.problem, s.index): Grade(
                        "correct" if s.index < right[int(s.problem[1:])] else ("truncated", "unparsed")[s.index % 2],
                        "4",
                        "",
                    )
                    for s in samples
                }
                outcome = Outcome.of(task, task, [Problem(f"p{i}", "?", "4") for i in range(12)], 8, samples, grades)
                protocol = {
                    "decoding": {"temperature": 1.0},
                    "fingerprint": f"{label} {seed}",
                    "model": f"{label}-{seed}",
                }
                found = pass_at_k_finding(outcome, ks, protocol=protocol)
                found.save(place / "findings" / f"pass-at-k-{task}.json")
    failed = [
        Failed(model, "dft", 1, "eval", "[Errno 28] no space left on device <disk>"),
        Failed(model, "talr", 0, "train", "out of memory"),
        Failed(model, "talr", 1, "train", "out of memory"),
    ]
    return comparison(recipe, cells, failed)


def comparison(tasks: tuple[str, ...] = ("gsm8k",), ks: tuple[int, ...] = (1, 4, 8)) -> Finding:
    """The same without the evaluations it was made of."""
    with tempfile.TemporaryDirectory() as folder:
        return compared(Path(folder), tasks, ks)


def project(folder: Path, repeat_tokens: int = 1) -> Path:
    """Two runs with evaluations, and every diagnostic."""
    for seed, (name, method) in enumerate((("sft", "sft"), ("ranktuner", "ranktuner(prior=prob)"))):
        run(folder / name, method, seed)
        share = 0.31 + 0.05 * seed
        evaluation(folder / "eval" / name, f"{folder}/{name}/model", share)
        evaluation(folder / "eval" / name, f"{folder}/{name}/model", share / 2, task="arc-challenge", ks=(1,))
    found = [
        comparison(),
        noise(),
        tightness(),
        regimes(),
        gradients(),
        surface(),
        inference_entropy(),
        tokens(repeat_tokens),
        inspect_data(),
    ]
    for finding in found:
        finding.save(folder / "findings" / f"{finding.kind}.json")
    return folder
