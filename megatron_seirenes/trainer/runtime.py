"""Opening what is heavy: the distributed world, the actor, the engine and the judge, each closed by the given stack."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import MissingComponentError, StoppedBySignal
from megatron_seirenes.trainer.assembly import PolicyAssets
from megatron_seirenes.trainer.ranks import ALONE, ProcessRanks, Ranks

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
    """A world of this process alone. Raises UsageError, and MissingComponentError when several were launched."""
    if launched_processes() > 1:
        raise MissingComponentError(
            f"{launched_processes()} processes were launched; this command runs on one: launch it directly, or with "
            "--nproc-per-node 1"
        )
    return _join_world(config, stack)


def open_ranks(config: Config, stack: ExitStack) -> tuple[World, Ranks]:
    """Joins the launcher's world, or makes one of one. Raises UsageError."""
    world = _join_world(config, stack)
    if world.size == 1:
        return world, ALONE
    ranks = ProcessRanks(config.rollout.tensor, world.data_rank, _timeout(config))

    def leave_together(kind: type[BaseException] | None, *details: object) -> None:
        """Rank 0 holds the store that the others end their groups with; a rank that failed is waited for by nobody."""
        if kind is None or issubclass(kind, StoppedBySignal):
            ranks.gather(None)

    stack.push(leave_together)
    return world, ranks


def _join_world(config: Config, stack: ExitStack) -> World:
    from megatron_seirenes.device.distributed import start_distributed, stop_distributed

    world = start_distributed(config.parallel, timeout=_timeout(config))
    stack.callback(stop_distributed)
    return world


def _timeout(config: Config) -> timedelta:
    return timedelta(minutes=config.faults.collective_minutes)


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
