"""Opening what is heavy: the distributed world, the actor, the engine and the judge, each closed by the given stack."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import MissingComponentError
from megatron_seirenes.trainer.assembly import PolicyAssets

if TYPE_CHECKING:
    from megatron_seirenes.actor.actor import Actor
    from megatron_seirenes.device.distributed import World
    from megatron_seirenes.rollouts.vllm_engine import VLLMEngine
    from megatron_seirenes.verifier.judge import PooledJudge


def launched_processes() -> int:
    """How many processes the launcher started; 1 without a launcher."""
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if size.isdigit() else 1


def open_world(config: Config, stack: ExitStack) -> World:
    """Joins the launcher's world or makes one of one. Raises UsageError, and MissingComponentError for more ranks."""
    from megatron_seirenes.device.distributed import start_distributed, stop_distributed

    world = start_distributed(config.parallel, timeout=timedelta(minutes=config.faults.collective_minutes))
    stack.callback(stop_distributed)
    if world.size > 1:
        raise MissingComponentError(
            f"{world.size} processes were launched; this release runs on one (several ranks are not built yet): "
            "launch it directly, or with --nproc-per-node 1"
        )
    return world


def open_actor(config: Config, assets: PolicyAssets, world: World) -> Actor:
    """The policy of `assets` under Megatron-Core, its weights loaded. Raises DataError."""
    from megatron_seirenes.actor.actor import Actor

    actor = Actor(assets.architecture, config, world.backend, sampled_vocabulary=assets.sampled_vocabulary)
    actor.load_hf(assets.folder)
    return actor


def open_engine(config: Config, assets: PolicyAssets, world: World, stack: ExitStack) -> VLLMEngine:
    """vLLM in this process, on the weights of `assets`."""
    from megatron_seirenes.rollouts.vllm_engine import VLLMEngine

    engine = VLLMEngine(
        assets.folder,
        config,
        architecture=assets.architecture,
        stop_ids=assets.stop_ids,
        sampled_vocabulary=assets.sampled_vocabulary,
        backend=world.backend,
    )
    stack.callback(engine.close)
    return engine


def open_judge(config: Config, stack: ExitStack) -> PooledJudge:
    """The pool of workers that judges answers."""
    from megatron_seirenes.verifier.judge import PooledJudge

    return stack.enter_context(PooledJudge(config.verifier))
