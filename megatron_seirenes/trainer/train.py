"""`seirenes train`: from a configuration to a trained policy, or on from where a run stood."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch

from megatron_seirenes.config.rules import training_faults
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.lost_ranks import lost_ranks_told
from megatron_seirenes.errors import ConfigError, StoppedBySignal
from megatron_seirenes.games.game import Game
from megatron_seirenes.objectives.registry import build_loss
from megatron_seirenes.observe.bundle_index import remove_records_after
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.rollouts.scheduler import CollectionStopped, Progress, RolloutScheduler
from megatron_seirenes.streams.streams import Streams
from megatron_seirenes.trainer.assembly import (
    PolicyAssets,
    build_roles,
    build_run_game,
    check_playable,
    check_policy_given,
    check_prompt_lengths,
    load_problems,
    open_policy,
    policy_folder,
)
from megatron_seirenes.trainer.bystander import Bystander
from megatron_seirenes.trainer.disk import disk_refusals_told
from megatron_seirenes.trainer.health import Health
from megatron_seirenes.trainer.loop import Trainer
from megatron_seirenes.trainer.parts import Evaluate, Parts
from megatron_seirenes.trainer.ranks import Ranks, any_of_replica, any_rank, first_alone, from_first
from megatron_seirenes.trainer.resume import (
    Resumption,
    adapted_state,
    check_accepted,
    check_optimizer_kind,
    claim,
    log_changes,
    open_snapshot,
    put_aside,
    run_fingerprint,
    snapshot_to_resume,
)
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import (
    launched_processes,
    open_actor,
    open_engine,
    open_judge,
    open_ranks,
)
from megatron_seirenes.trainer.shared_judge import shared_judge
from megatron_seirenes.trainer.sharing import sequence_cost
from megatron_seirenes.trainer.signals import StopListener
from megatron_seirenes.trainer.watch import Watch, watch_of
from megatron_seirenes.verifier.protocol import Judge

if TYPE_CHECKING:
    from megatron_seirenes.actor.actor import Actor
    from megatron_seirenes.actor.forward import MicroBatchSpan
    from megatron_seirenes.device.distributed import World
    from megatron_seirenes.trainer.weight_sync import WeightSync


def train(config: Config, resume: str = "auto", accept: Collection[str] = ()) -> None:
    """Trains `config` in its run directory; `resume` is auto, never or the path of a snapshot.

    `accept` names what may differ between the snapshot and this run: model, game, problems (trainer/resume.py).
    Raises ConfigError, DataError and UsageError for what is wrong with the input, StoppedBySignal after a stop.
    """
    faults = training_faults(config, cuda=torch.cuda.is_available(), world_size=launched_processes())
    if faults:
        raise ConfigError("configuration", faults)
    directory = RunDirectory.of(config)
    game = build_run_game(config)
    problems = load_problems(config)
    check_playable(game, problems)
    check_policy_given(config)
    with ExitStack() as stack:
        stack.enter_context(disk_refusals_told())
        stop = stack.enter_context(StopListener())
        world, ranks = open_ranks(config, stack)
        stack.enter_context(lost_ranks_told(world.size))
        snapshot = first_alone(ranks, lambda: _prepare(config, directory, resume))
        assets = open_policy(config, directory)
        roles = build_roles(config, (stage.role for stage in game.stages), assets.chat)
        fingerprint = run_fingerprint(game, roles, assets, problems)
        resumed = None if snapshot is None else open_snapshot(snapshot, fingerprint, check_accepted(accept))
        started = first_alone(ranks, lambda: claim(directory, config, snapshot, resume))
        watch = watch_of(ranks, config, directory, game, assets.tokenizer.decode)
        stack.enter_context(watch)
        heartbeat = None if ranks.rank else directory.heartbeat
        health = Health(heartbeat, directory.logs, ranks.rank, config.faults.hung_minutes, watch.event)
        new = resumed is None
        parts = _build(config, directory, game, roles, problems, assets, watch, stop, health, world, ranks, new, stack)
        trainer = Trainer(config, parts, directory, watch, stop, fingerprint, health)
        if resumed is not None:
            _go_on(trainer, resumed)
        elif started:
            _start_over(trainer)
        watch.begin()
        if resumed is not None or started:
            watch.event(started or f"going on from {snapshot}")
        stack.enter_context(health)
        try:
            reason = trainer.run()
        except StoppedBySignal as stopped:
            if ranks.rank == 0:
                directory.stopped_marker.write_text(f"{stopped}\n", encoding="utf-8")
            raise
        _export(trainer, assets, directory, config)
        watch.finished(reason)


def _prepare(config: Config, directory: RunDirectory, resume: str) -> Path | None:
    """The snapshot to go on from; makes the run directory, and the folder of a new model in it."""
    snapshot = snapshot_to_resume(directory, resume, report=print)
    if snapshot is not None:
        check_optimizer_kind(snapshot, config)
    policy_folder(config, directory)
    directory.create()
    return snapshot


def _build(
    config: Config,
    directory: RunDirectory,
    game: Game,
    roles: Roles,
    problems: list[Problem],
    assets: PolicyAssets,
    watch: Watch | Bystander,
    stop: StopListener,
    health: Health,
    world: World,
    ranks: Ranks,
    fresh: bool,
    stack: ExitStack,
) -> Parts:
    def micro_batch_ran(span: MicroBatchSpan) -> None:
        health.beat()
        watch.micro_batch_span(span)

    first = {stage.role for stage in game.stages if stage.parent is None}
    check_prompt_lengths(problems, (roles[name] for name in sorted(first)), config.rollout.max_prompt_tokens)
    judge = shared_judge(open_judge(config, stack), ranks)
    actor = open_actor(config, assets, world)
    actor.report_micro_batches(watch.clock, micro_batch_ran)
    if config.objective.reference_kl > 0:
        actor.remember_reference()
    engine = open_engine(config, assets, world, stack)
    return Parts(
        game=game,
        sampler=ProblemSampler(problems, config.problems.per_step, config.run.seed, config.problems.mastery),
        streams=Streams(game),
        scheduler=_scheduler(config, game, roles, engine, judge, assets, watch, stop, health, ranks),
        actor=actor,
        engine=engine,
        losses={stream.name: build_loss(stream, config.objective) for stream in game.streams},
        sync=_sync(config, directory, actor, assets, ranks, fresh),
        evaluate=_evaluation(config, roles, engine, judge, assets, directory, stop, health, ranks),
        ranks=ranks,
        cost=sequence_cost(assets.architecture),
    )


def _sync(
    config: Config, directory: RunDirectory, actor: Actor, assets: PolicyAssets, ranks: Ranks, fresh: bool
) -> WeightSync:
    """`fresh`: the run begins, with the weights of the policy's folder."""
    from megatron_seirenes.bridge.plan import plan_of
    from megatron_seirenes.trainer.weight_sync import WeightSync

    return WeightSync(
        actor.modules,
        assets.architecture,
        plan_of(config, assets.architecture, ranks.places.size),
        ranks,
        folder=assets.folder,
        fresh=fresh,
        dtype=config.model.dtype,
        scratch=directory.synced,
        verify=config.observe.verify_sync,
    )


def _scheduler(
    config: Config,
    game: Game,
    roles: Roles,
    engine: Engine,
    judge: Judge,
    assets: PolicyAssets,
    watch: Watch | Bystander,
    stop: StopListener,
    health: Health,
    ranks: Ranks,
) -> RolloutScheduler:
    def on_progress(progress: Progress) -> None:
        health.beat("judging" if progress.finished == progress.submitted else "rollout")
        watch.progress(progress)

    return RolloutScheduler(
        game,
        roles,
        {"shared": engine},
        judge,
        assets.chat.decode,
        run_seed=config.run.seed,
        temperature=config.rollout.temperature,
        top_p=config.rollout.top_p,
        max_prompt_tokens=config.rollout.max_prompt_tokens,
        barrier=config.rollout.barrier,
        clock=watch.clock,
        on_span=watch.rollout_span,
        on_judged=watch.judging_span,
        on_progress=on_progress,
        should_stop=lambda: any_of_replica(ranks, stop.requested),
        stalled_steps=config.faults.stalled_steps,
        max_regenerations=config.faults.regenerations,
        on_stall=watch.event,
    )


def _evaluation(
    config: Config,
    roles: Roles,
    engine: Engine,
    judge: Judge,
    assets: PolicyAssets,
    directory: RunDirectory,
    stop: StopListener,
    health: Health,
    ranks: Ranks,
) -> Evaluate | None:
    """Evaluates the configured benchmarks with the trainer's own engine; None when training is not evaluated.

    Each replica asks its share of the questions; rank 0 writes the results. Distractors of endpoints are made here,
    before the first step.
    """
    if not config.evaluation.every or not config.evaluation.benchmarks:
        return None
    from megatron_seirenes.evaluation.benchmarks import Evaluator
    from megatron_seirenes.evaluation.distractors import make_endpoint_distractors

    first_alone(ranks, lambda: make_endpoint_distractors(config, lambda: stop.requested))

    def should_stop() -> bool:
        health.beat()
        return any_of_replica(ranks, stop.requested)

    evaluator = Evaluator(config, roles, engine, judge, assets.chat, should_stop=should_stop, ranks=ranks)

    def run(step: int) -> Mapping[str, float | None]:
        metrics: Mapping[str, float | None] | None = None
        with TemporaryDirectory() as nowhere, suppress(CollectionStopped):
            out = Path(nowhere) if ranks.rank else directory.evaluation / f"step-{step:06d}"
            metrics = evaluator.run_all(out).metrics()
        if any_rank(ranks, metrics is None) or metrics is None:
            raise CollectionStopped(f"the evaluation of step {step} was stopped")
        return from_first(ranks, metrics)

    return run


# -- going on


def _go_on(trainer: Trainer, resumed: Resumption) -> None:
    """Loads the snapshot into the trainer, says what changed since, and cuts the records of later steps."""
    parts, directory = trainer.parts, trainer.directory
    trainer.restore(resumed.snapshot, adapted_state(resumed, parts.game, parts.sampler))
    cursor = trainer.cursor
    trainer.watch.go_on_after(cursor.step, trainer.spent)
    if parts.ranks.rank:
        return
    remove_records_after(directory.path, cursor.step if cursor.next_stream is None else cursor.step + 1)
    put_aside(directory.snapshots, cursor, report=print)
    for change in log_changes(directory, resumed, trainer.config):
        print(f"changed since {resumed.snapshot.name}: {change}")


def _start_over(trainer: Trainer) -> None:
    """Drops what a run that was ended before its first snapshot left behind."""
    trainer.watch.go_on_after(0, trainer.spent)
    if trainer.parts.ranks.rank:
        return
    remove_records_after(trainer.directory.path, 0)
    put_aside(trainer.directory.snapshots, None, report=print)


def _export(trainer: Trainer, assets: PolicyAssets, directory: RunDirectory, config: Config) -> None:
    from megatron_seirenes.bridge.export import export_hf_folder

    export_hf_folder(
        trainer.parts.actor.modules, assets.architecture, directory.policy, assets.folder, config.model.dtype
    )
