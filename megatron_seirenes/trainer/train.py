"""`seirenes train`: from a configuration to a trained policy, or on from where a run stood."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

import torch

from megatron_seirenes.config.loading import dump_config
from megatron_seirenes.config.rules import training_faults
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError, StoppedBySignal, UsageError
from megatron_seirenes.games.game import Game
from megatron_seirenes.objectives.registry import build_loss
from megatron_seirenes.observe.bundle_index import remove_records_after
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.rollouts.scheduler import RolloutScheduler
from megatron_seirenes.streams.streams import Streams
from megatron_seirenes.trainer.assembly import (
    PolicyAssets,
    build_roles,
    build_run_game,
    check_prompt_lengths,
    load_problems,
    open_policy,
)
from megatron_seirenes.trainer.loop import Evaluate, Parts, Trainer
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import launched_processes, open_actor, open_engine, open_judge, open_world
from megatron_seirenes.trainer.signals import StopListener
from megatron_seirenes.trainer.snapshot import complete_snapshots, newest_sound_snapshot, read_state
from megatron_seirenes.trainer.watch import Watch
from megatron_seirenes.verifier.protocol import Judge


def train(config: Config, resume: str = "auto") -> None:
    """Trains `config` in its run directory; `resume` is auto, never or the path of a snapshot.

    Raises ConfigError, DataError and UsageError for what is wrong with the input, StoppedBySignal after a stop.
    """
    faults = training_faults(config, cuda=torch.cuda.is_available(), world_size=launched_processes())
    if faults:
        raise ConfigError("configuration", faults)
    directory = RunDirectory.of(config)
    game = build_run_game(config)
    problems = load_problems(config)
    snapshot = _snapshot_to_resume(directory, resume)
    assets = open_policy(config, directory)
    directory.create()
    _claim(directory, config, resuming=snapshot is not None)
    with ExitStack() as stack:
        stop = stack.enter_context(StopListener())
        watch = stack.enter_context(Watch(config, directory, game, assets.tokenizer.decode))
        trainer = _build(config, directory, game, problems, assets, watch, stop, stack)
        if snapshot is not None:
            _go_on(trainer, snapshot)
        watch.begin()
        if snapshot is not None:
            watch.event(f"going on from {snapshot}")
        try:
            reason = trainer.run()
        except StoppedBySignal as stopped:
            directory.stopped_marker.write_text(f"{stopped}\n", encoding="utf-8")
            raise
        _export(trainer, assets, directory, config)
        watch.finished(reason)


def _build(
    config: Config,
    directory: RunDirectory,
    game: Game,
    problems: list[Problem],
    assets: PolicyAssets,
    watch: Watch,
    stop: StopListener,
    stack: ExitStack,
) -> Trainer:
    from megatron_seirenes.bridge.gather import hf_tensors

    roles = build_roles(config, (stage.role for stage in game.stages), assets.chat)
    first = {stage.role for stage in game.stages if stage.parent is None}
    check_prompt_lengths(problems, (roles[name] for name in sorted(first)), config.rollout.max_prompt_tokens)
    world = open_world(config, stack)
    judge = open_judge(config, stack)
    actor = open_actor(config, assets, world)
    if config.objective.reference_kl > 0:
        actor.remember_reference()
    engine = open_engine(config, assets, world, stack)
    parts = Parts(
        game=game,
        sampler=ProblemSampler(problems, config.problems.per_step, config.run.seed, config.problems.mastery),
        streams=Streams(game),
        scheduler=_scheduler(config, game, roles, engine, judge, assets, watch, stop),
        actor=actor,
        engine=engine,
        losses={stream.name: build_loss(stream, config.objective) for stream in game.streams},
        policy_tensors=lambda: hf_tensors(actor.modules, assets.architecture),
        evaluate=_evaluation(config, roles, engine, judge, assets, directory),
    )
    return Trainer(config, parts, directory, watch, stop, run_fingerprint(game, assets, problems))


def _scheduler(
    config: Config,
    game: Game,
    roles: Roles,
    engine: Engine,
    judge: Judge,
    assets: PolicyAssets,
    watch: Watch,
    stop: StopListener,
) -> RolloutScheduler:
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
        on_progress=watch.progress,
        should_stop=lambda: stop.requested,
    )


def _evaluation(
    config: Config, roles: Roles, engine: Engine, judge: Judge, assets: PolicyAssets, directory: RunDirectory
) -> Evaluate | None:
    """Evaluates the configured benchmarks with the trainer's own engine; None when training is not evaluated."""
    if not config.evaluation.every or not config.evaluation.benchmarks:
        return None
    from megatron_seirenes.evaluation.benchmarks import Evaluator

    evaluator = Evaluator(config, roles, engine, judge, assets.chat)
    return lambda step: evaluator.run_all(directory.evaluation / f"step-{step:06d}").metrics()


# -- going on


def _snapshot_to_resume(directory: RunDirectory, resume: str) -> Path | None:
    if resume == "never":
        return None
    if resume != "auto":
        path = Path(resume)
        if not (path / "COMPLETE").exists():
            raise UsageError(f"--resume: {path} is not a complete snapshot (it holds no COMPLETE)")
        return path
    return newest_sound_snapshot(directory.snapshots, report=print)


def _claim(directory: RunDirectory, config: Config, resuming: bool) -> None:
    """Refuses to write over another run's records; leaves the resolved configuration behind."""
    if not resuming and (directory.holds_a_run() or complete_snapshots(directory.snapshots)):
        raise UsageError(
            f"run.dir: {directory.path} already holds a run; name another run.name or run.dir, remove it, "
            "or go on with --resume auto"
        )
    directory.stopped_marker.unlink(missing_ok=True)
    directory.config.write_text(dump_config(config), encoding="utf-8")


def run_fingerprint(game: Game, assets: PolicyAssets, problems: list[Problem]) -> dict[str, str]:
    """What must not change between a snapshot and the run that goes on from it."""
    digest = hashlib.blake2b(digest_size=16)
    for problem in problems:
        digest.update(f"{problem.id}\0{problem.question}\0{problem.answer}\0".encode())
    return {"game": game.name, "model": repr(assets.architecture), "problems": digest.hexdigest()}


def _go_on(trainer: Trainer, snapshot: Path) -> None:
    state = read_state(snapshot)
    changed = [key for key, value in trainer.fingerprint.items() if state["fingerprint"].get(key) != value]
    if changed:
        raise UsageError(
            f"{snapshot}: made with another {' and another '.join(changed)}; use the configuration it was made with, "
            "or start a new run (run.name)"
        )
    trainer.load_state_dict(state)
    trainer.parts.actor.load(snapshot / "actor")
    step = trainer.cursor.step
    trainer.watch.go_on_after(step, trainer.spent)
    remove_records_after(trainer.directory.path, step if trainer.cursor.next_stream is None else step + 1)


def _export(trainer: Trainer, assets: PolicyAssets, directory: RunDirectory, config: Config) -> None:
    from megatron_seirenes.bridge.export import export_hf_folder

    export_hf_folder(
        trainer.parts.actor.modules, assets.architecture, directory.policy, assets.folder, config.model.dtype
    )
