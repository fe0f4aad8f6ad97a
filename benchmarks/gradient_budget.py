"""What a gradient budget saves and costs on a real model: time, mass left out, error of the gradients.

    python benchmarks/gradient_budget.py --data FOLDER      # a folder that holds gsm8k/train.jsonl

Hidden states of SmolLM2-135M-Instruct over worked GSM8K solutions, 4,096 supervised tokens, in bf16. Exact and budgeted
steps take turns. The mass left out is computed from the dense logits, apart from what the kernel reports.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from statistics import median
from typing import Any

import head as head_benchmark
import torch
from torch import Tensor

import ranktuner as rt
from ranktuner.align import supervised
from ranktuner.findings import Finding, provenance
from ranktuner.pretrained import fetch_smollm2

RESULT = Path(__file__).parent / "results" / "gradient_budget.json"
METHODS = ["sft", "ranktuner", "ranktuner(prior=prob)"]
BUDGETS = [0.001, 0.01, 0.05]


def hidden_states(data: Path, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Last hidden states and labels of the solutions' tokens, and the head's weight."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetch_smollm2()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    hidden, labels, found = [], [], 0
    for line in (data / "gsm8k" / "train.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        question = [{"role": "user", "content": row["question"]}]
        answer = [{"role": "assistant", "content": re.sub(r"<<.*?>>", "", row["answer"])}]
        start = len(tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False))
        ids = torch.tensor([tokenizer.apply_chat_template(question + answer, return_dict=False)])
        target = ids.clone()
        target[:, :start] = -100
        aligned = supervised(target)
        with torch.no_grad():
            hidden.append(aligned.rows(model.model(ids).last_hidden_state))
        labels.append(aligned.target)
        found += len(aligned)
        if found >= tokens:
            break
    return torch.cat(hidden)[:tokens], torch.cat(labels)[:tokens], model.lm_head.weight.detach()


def step(h: Tensor, w: Tensor, y: Tensor, method: str, budget: float) -> tuple[rt.LossOutput, list[Tensor]]:
    out = rt.fused_weighted_loss(h, w, y, method, grad_budget=budget, implementation="compiled")
    return out, list(torch.autograd.grad(out.loss, [h, w]))


def seconds(h: Tensor, w: Tensor, y: Tensor, method: str, budget: float) -> float:
    start = time.perf_counter()
    step(h, w, y, method, budget)
    return time.perf_counter() - start


def mass_left_out(h: Tensor, w: Tensor, y: Tensor, method: str, kept_rows: Tensor) -> float:
    """Share of the logit gradient's L1 mass on rows whose hidden gradient is exactly zero, from dense logits."""
    signals = rt.signals_from_logits(torch.nn.functional.linear(h, w).detach(), y)
    mass = rt.method(method).weights(signals).double() * (1 - signals.p.double())
    return float(mass[~kept_rows].sum() / mass.sum())


def compare(exact: Tensor, other: Tensor) -> dict[str, float]:
    a, b = exact.double().flatten(), other.double().flatten()
    return {"relative_error": float((a - b).norm() / a.norm()), "cosine": float(a @ b / (a.norm() * b.norm()))}


def measure(h: Tensor, w: Tensor, y: Tensor, repeats: int) -> list[dict[str, Any]]:
    rows = []
    for method in METHODS:
        _, (exact_h, exact_w) = step(h, w, y, method, 0.0)
        for budget in BUDGETS:
            out, (d_h, d_w) = step(h, w, y, method, budget)
            pairs = [[seconds(h, w, y, method, share) for share in (budget, 0.0)] for _ in range(repeats)]
            kept = d_h.abs().sum(1) > 0
            rows.append(
                {
                    "method": method,
                    "budget": budget,
                    "time_ratio": median(a / b for a, b in pairs),
                    "rows_kept": float(kept.double().mean()),
                    "left_out_reported": float(out.metrics["left_out_max"]),
                    "left_out_from_dense": mass_left_out(h, w, y, method, kept),
                    "hidden_gradient": compare(exact_h, d_h),
                    "head_gradient": compare(exact_w, d_w),
                }
            )
            print(json.dumps(rows[-1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    h, y, w = hidden_states(arguments.data, arguments.tokens)
    rows = measure(h.requires_grad_(), w.requires_grad_(), y, arguments.repeats)
    finding = Finding(
        kind="benchmark-gradient-budget",
        title="Gradient budget on SmolLM2-135M-Instruct over GSM8K solutions",
        n=len(y),
        numbers={"rows": rows},
        protocol={"unit": "supervised tokens", "dtype": "bf16", "repeats": arguments.repeats, "row pass": "compiled"},
        provenance=provenance(hardware=head_benchmark.hardware("cpu")),
    )
    print(f"stored in {finding.save(RESULT)}")


if __name__ == "__main__":
    main()
