"""Putting a run together from its configuration: the policy's folder and tokenizer, the game, the roles, the problems.

What is opened here is light; models and engines are built by the commands that need them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.architecture import Architecture, read_architecture
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError, DataError
from megatron_seirenes.games.credit import CreditRules
from megatron_seirenes.games.game import Game
from megatron_seirenes.games.hint_file import read_hints
from megatron_seirenes.games.options import GameOptions, MemoryOptions
from megatron_seirenes.games.registry import StreamOverrides, build_game
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Role, Roles
from megatron_seirenes.roles.tokenizer import load_tokenizer, stop_ids
from megatron_seirenes.trainer.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class PolicyAssets:
    """A policy's folder and what is read from it. Ids of `sampled_vocabulary` and above have no token."""

    folder: Path
    architecture: Architecture
    tokenizer: Any
    chat: ChatFormat
    stop_ids: tuple[int, ...]
    sampled_vocabulary: int


def open_policy(config: Config, directory: RunDirectory) -> PolicyAssets:
    """The policy of `model.path`, or of `model.new` made in the run directory once. Raises UsageError."""
    folder = policy_folder(config, directory)
    architecture = read_architecture(folder)
    tokenizer = load_tokenizer(folder, trust_remote_code=config.model.trust_remote_code)
    return PolicyAssets(
        folder=folder,
        architecture=architecture,
        tokenizer=tokenizer,
        chat=ChatFormat(tokenizer),
        stop_ids=stop_ids(folder, tokenizer),
        sampled_vocabulary=min(len(tokenizer), architecture.vocabulary),
    )


def check_policy_given(config: Config) -> None:
    """Raises ConfigError unless one of `model.path` and `model.new` is given, DataError for a missing folder."""
    model = config.model
    if (model.path is None) == (model.new is None):
        raise ConfigError("model", ["model.path, model.new: exactly one of them must be given"])
    if model.path is not None and not Path(model.path).is_dir():
        raise DataError(f"model.path: {model.path} is not a folder; a Hugging Face model folder is expected")


def policy_folder(config: Config, directory: RunDirectory) -> Path:
    """The folder of `model.path`, or that of `model.new`, made in the run directory once. Raises as the check does."""
    check_policy_given(config)
    model = config.model
    if model.new is None:
        return Path(str(model.path))
    from megatron_seirenes.bridge.new_model import create_model_folder

    folder = directory.path / "new_model"
    if not (folder / "config.json").exists():
        create_model_folder(model.new, config.run.seed, model.dtype, folder)
    return folder


def build_run_game(config: Config) -> Game:
    """The configured game with its overrides; streams that are switched off are left out."""
    return build_game(
        config.game.name,
        stages={name: (stage.samples, stage.max_tokens) for name, stage in config.game.stages.items()},
        streams={name: StreamOverrides(**settings.model_dump()) for name, settings in config.streams.items()},
        rules=CreditRules(
            advantage_epsilon=config.objective.advantage_epsilon,
            advantage=config.objective.advantage,
            gate_penalties={name: role.gate_penalty for name, role in config.roles.items()},
            mastery=config.problems.mastery.criterion,
            overlong_filter=config.objective.overlong_filter,
            overlong_penalty=config.objective.overlong_penalty,
            overlong_cache=config.objective.overlong_cache,
        ),
        options=_game_options(config),
    )


def _game_options(config: Config) -> GameOptions:
    game = config.game
    return GameOptions(
        adversary=game.adversary,
        robust_hints=game.robust_hints,
        memory=None if game.memory.max_age is None else MemoryOptions(game.memory.max_age, game.memory.min_delta),
        hints=read_hints(Path(game.hint_file)) if game.hint_file is not None else {},
        hint_share=game.hint_share,
    )


def check_playable(game: Game, problems: Iterable[Problem]) -> None:
    """Every problem can be played by the game. Raises DataError naming the first that cannot, and how many."""
    reasons = {problem.id: game.unplayable(problem) for problem in problems} if game.unplayable is not None else {}
    faults = [(problem_id, reason) for problem_id, reason in reasons.items() if reason is not None]
    if faults:
        problem_id, reason = faults[0]
        raise DataError(f"game {game.name}: problem {problem_id}: {reason} ({len(faults)} of {len(reasons)} problems)")


def build_roles(config: Config, names: Iterable[str], chat: ChatFormat) -> Roles:
    return Roles.build(config.roles, sorted(set(names)), chat)


def load_problems(config: Config) -> list[Problem]:
    """Every training problem, ids unique over all sources. Raises ConfigError when there is none, DataError."""
    if not config.problems.train:
        raise ConfigError("problems", ["problems.train: no source of questions is given"])
    problems = [p for source in config.problems.train for p in read_problems(source, config.problems.bad_rows)]
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"problems.train: two problems share the id {problem.id!r}")
        seen.add(problem.id)
    return problems


def check_prompt_lengths(problems: Iterable[Problem], roles: Iterable[Role], limit: int) -> None:
    """Every question fits `rollout.max_prompt_tokens` under every given role. Raises DataError naming the first not."""
    roles = list(roles)
    for problem in problems:
        for role in roles:
            length = len(role.prompt_ids(problem, {}))
            if length > limit:
                raise DataError(
                    f"problem {problem.id}: its {role.name} prompt has {length} tokens; "
                    f"rollout.max_prompt_tokens is {limit}: raise it or leave the problem out"
                )
