"""How the processes were started, checked before and after: what was asked for must be what is."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ranktuner.errors import RankTunerError, UnsupportedError
from ranktuner.train.config import TrainConfig
from ranktuner.train.plan import World

T = TypeVar("T")


def check_launch(config: TrainConfig, world: World) -> None:
    """Refuse a launch whose sharding could not come into effect, before anything is loaded."""
    wants = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if config.sharding == "accelerate" and not wants:
        raise UnsupportedError(
            "sharding=accelerate, but this process was not started with FSDP; start it with "
            "`accelerate launch --use_fsdp --fsdp_version 2 ... -m ranktuner train ...` (docs/scaling.md)"
        )
    if wants and config.sharding != "accelerate":
        raise UnsupportedError(
            f"accelerate was told to use FSDP, but sharding={config.sharding}; add --set sharding=accelerate"
        )
    if config.sharding != "none" and world.processes == 1:
        raise UnsupportedError(
            f"sharding={config.sharding} with one process shards nothing; start several with torchrun or accelerate"
        )


def on_main(function: Callable[[], T]) -> T:
    """Run `function` on the first process and give its answer to all; its error ends all, and one of them says it."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return function()
    answer: list[Any] = [None, None]
    problem: RankTunerError | None = None
    if dist.get_rank() == 0:
        try:
            answer[0] = function()
        except RankTunerError as error:
            problem, answer[1] = error, str(error)
    dist.broadcast_object_list(answer, src=0)
    if problem is not None:
        raise problem
    if answer[1] is not None:
        raise SystemExit(1)
    result: T = answer[0]
    return result


def leave() -> None:
    """End the process group at the end of a program; left to the interpreter's exit it aborts now and then."""
    if "torch.distributed" not in sys.modules:
        return
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def check_processes(world: World, seen: int) -> None:
    """Refuse a run whose processes do not know of each other: each would train alone, on everything."""
    if seen != world.processes:
        raise UnsupportedError(
            f"{world.processes} processes were started but training sees {seen}: each would train by itself; "
            "start them with torchrun, or with accelerate launch --multi_gpu (on a CPU: torchrun)"
        )


def check_sharding(config: TrainConfig, model: Any, kind: str) -> str:
    """Return in words how the parameters lie, or refuse where the sharding asked for is not in effect.

    Args:
        config: with the sharding asked for.
        model: as it is trained, wrapped.
        kind: accelerate's distributed type.
    """
    from torch.distributed.tensor import DTensor

    parameters = list(model.parameters())
    sharded = sum(isinstance(p, DTensor) for p in parameters)
    if config.sharding != "none" and not sharded:
        raise UnsupportedError(
            f"sharding={config.sharding} was asked for, but no parameter is sharded (accelerate says {kind}); "
            "see docs/scaling.md for the launch command"
        )
    if config.sharding == "none" and sharded:
        raise UnsupportedError(f"{sharded} parameters are sharded though sharding=none; say sharding=accelerate")
    if sharded:
        return f"FSDP2 ({config.sharding}), {sharded} of {len(parameters)} parameters sharded"
    return {"NO": "one process", "MULTI_CPU": "DDP over gloo", "MULTI_GPU": "DDP"}.get(kind, kind)


def check_optimizer(model: Any, optimizer: Any) -> None:
    """Refuse an optimiser that does not hold exactly the model's trainable parameters: the others would never move."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    idle = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]
    if idle:
        raise UnsupportedError(
            f"the optimiser does not hold {len(idle)} trainable parameters (first: {idle[0]}): they would never move; "
            "this combination of model and sharding cannot be trained"
        )


def quiet_libraries() -> None:
    """Keep loading bars and known warnings of the libraries off the console: the display is ours."""
    for name in ("transformers", "bitsandbytes"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # TRL still speaks of gradient checkpointing where transformers has renamed it.
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)
    import transformers

    transformers.utils.logging.disable_progress_bar()
