"""Train a tiny model with an attached head in one process and in two (DDP, FSDP2 in five wrap styles); print as JSON.

A script, so that each process is a fresh interpreter: python tests/head/two_processes.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parents[1]))

from head.families import batch, tiny

import ranktuner as rt

STEPS = 3
METHODS = ["ranktuner(prior=prob)", "talr(tau=micro-batch)"]
WRAPS = ["root", "root_reshard", "own", "tail", "tail_reshard"]
CASES = [("ddp", tie, METHODS[0]) for tie in (True, False)]
CASES += [(wrap, tie, method) for wrap in WRAPS for tie in (True, False) for method in METHODS]


def wrapped(model: Any, style: str) -> Any:
    """Shard as the style says; tied weights cannot stand in two units, so a tied head stays with the root."""
    if style == "alone":
        return model
    if style == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    reshard = style.endswith("reshard") or style == "own"
    for layer in model.model.layers:
        fully_shard(layer, reshard_after_forward=True)
    tied = model.config.tie_word_embeddings
    if style == "own" and not tied:
        fully_shard(model.lm_head, reshard_after_forward=True)
    elif style.startswith("tail") and not tied:
        fully_shard([model.model.norm, model.lm_head], reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)
    return model


def train(style: str, tie: bool, method: str, rank: int, world: int) -> dict[str, Any]:
    """Three steps of SGD, each of two micro-batches a process, with an evaluation in between."""
    model = wrapped(tiny("llama", tie_word_embeddings=tie), style)
    sharded = [type(p).__name__ for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    data = batch(rows=4)
    count = int((data["labels"][:, 1:] != -100).sum())
    losses, norms, evals = [], [], []
    with rt.attach(model, method) as attachment:
        for _ in range(STEPS):
            total = torch.zeros(())
            for row in range(rank, 4, world):
                part = {k: v[row : row + 1] for k, v in data.items()}
                loss = model(**part, num_items_in_batch=count).loss * world  # DDP and FSDP average over processes
                loss.backward()
                total += loss.detach() / world
            losses.append(summed(total, world))
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
            optimizer.step()
            optimizer.zero_grad()
            attachment.pop_metrics()
            model.eval()
            with torch.no_grad():
                model(**data)
            model.train()
            evals.append(float(attachment.pop_metrics(evaluation=True)["nll_sum"]))
    return {"losses": losses, "norms": norms, "evals": evals, "parameters": sorted(set(sharded))}


def summed(x: torch.Tensor, world: int) -> float:
    if world > 1:
        dist.all_reduce(x)
    return float(x)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {json.dumps(case): train(*case, rank, 2) for case in CASES}
    if rank == 0:
        (Path(folder) / "two.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = sys.argv[1]
    alone = {json.dumps([tie, m]): train("alone", tie, m, 0, 1) for tie in (True, False) for m in METHODS}
    (Path(place) / "one.json").write_text(json.dumps(alone))
    mp.spawn(work, args=(place,), nprocs=2)
