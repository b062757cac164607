"""Rules about games: the names of games, stages, streams and roles, and the numbers that must fit one another.

A name that some known game uses is fine even when another game is chosen, so that `game.name=grpo` works over any file;
a name that no game knows is a fault. Numbers are checked for the chosen game only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from megatron_seirenes.config.faults import Fault, nearest
from megatron_seirenes.config.schema import Config, StreamSettings
from megatron_seirenes.config.shape import MODEL, Shape
from megatron_seirenes.games.game import Game, Stream
from megatron_seirenes.games.options import GameOptions
from megatron_seirenes.games.registry import build_game, default_game, game_names, preset_advice


def chosen_game(config: Config) -> Game | None:
    """The game that `game.name` names, with its default numbers; None when there is no such game."""
    if config.game.name not in game_names():
        return None
    return build_game(config.game.name, options=GameOptions(adversary=config.game.adversary))


def max_tokens(config: Config, game: Game, stage: str) -> int:
    """The response limit of a stage: the configuration's, or the game's."""
    settings = config.game.stages.get(stage)
    given = settings.max_tokens if settings else None
    return game.stage(stage).max_tokens if given is None else given


def samples(config: Config, game: Game, stage: str) -> int:
    """How many responses one asking of a stage draws: the configuration's number, or the game's."""
    settings = config.game.stages.get(stage)
    given = settings.samples if settings else None
    return game.stage(stage).samples if given is None else given


def live_streams(config: Config, game: Game) -> list[Stream]:
    """The streams of the game that are not switched off."""
    return [stream for stream in game.streams if config.streams.get(stream.name, StreamSettings()).enabled]


def unknown_names(config: Config) -> Iterator[Fault]:
    """Names of games, stages, streams and roles that nothing knows."""
    if config.game.name not in game_names():
        advice = preset_advice(config.game.name)
        yield Fault(
            "game.name", f"{config.game.name!r} is not a game; {advice}{nearest(config.game.name, game_names())}"
        )
    games = [default_game(name) for name in game_names()]
    stages = [stage.name for game in games for stage in game.stages]
    streams = [stream.name for game in games for stream in game.streams]
    roles = [stage.role for game in games for stage in game.stages]
    yield from _unknown("game.stages", "a stage", config.game.stages, stages)
    yield from _unknown("streams", "a stream", config.streams, streams)
    yield from _unknown("roles", "a role", config.roles, roles)


def _unknown(section: str, kind: str, names: Iterable[str], known: list[str]) -> Iterator[Fault]:
    distinct = list(dict.fromkeys(known))
    for name in names:
        if name not in distinct:
            yield Fault(f"{section}.{name}", f"not {kind} of any known game; {nearest(name, distinct)}")


def capacities(config: Config) -> Iterator[Fault]:
    """A stream that holds less than a flush could never be trained on."""
    game = chosen_game(config)
    defaults = {stream.name: stream.flush for stream in game.streams} if game else {}
    for name, settings in config.streams.items():
        flush = settings.flush if settings.flush is not None else defaults.get(name)
        if flush is None or settings.capacity is None or settings.capacity >= flush:
            continue
        yield Fault(
            f"streams.{name}.capacity",
            f"{settings.capacity} is below the flush size: at least {flush} is needed (streams.{name}.flush)",
            about=(f"streams.{name}.flush", "game.name"),
        )


def some_stream_lives(config: Config) -> Iterator[Fault]:
    """With every stream off, nothing would ever be learned."""
    game = chosen_game(config)
    if game and not live_streams(config, game):
        names = ", ".join(stream.name for stream in game.streams)
        yield Fault("streams", f"every stream of game {game.name} is off; enable one of {names}", about=("game.name",))


def groups_compare(config: Config) -> Iterator[Fault]:
    """A group whose responses are credited against each other needs two of them, or its stream never learns."""
    game = chosen_game(config)
    if game is None:
        return
    for stream in live_streams(config, game):
        stage = stream.trains_on
        if stream.objective == "clipped" and samples(config, game, stage) < 2:
            yield Fault(
                f"game.stages.{stage}.samples",
                f"1 response of {stage} has none to be compared with, so that the stream {stream.name} would never "
                f"learn: 2 or more are needed, or streams.{stream.name}.enabled false",
                about=("game.name", "game.adversary", f"streams.{stream.name}.enabled"),
            )


def flushes_are_fresh(config: Config) -> Iterator[Fault]:
    """The n-th flush of a step is n - 1 updates late even for groups of that step: within the limit, or never made."""
    for name, stream in config.streams.items():
        for key in ("max_lag", "max_policy_lag"):
            lag = getattr(stream, key)
            if stream.max_flushes - 1 > lag:
                yield Fault(
                    f"streams.{name}.max_flushes",
                    f"of {stream.max_flushes} flushes a step at most {lag + 1} could be made, since groups are evicted "
                    f"after {lag} updates: lower it, or raise streams.{name}.{key} to {stream.max_flushes - 1}",
                    about=(f"streams.{name}.{key}",),
                )


def memory_is_learned_from(config: Config) -> Iterator[Fault]:
    """Answers under remembered hints are learned from by the stream robust; without it none are asked for."""
    game = chosen_game(config)
    if game is None or game.name != "seirenes" or config.game.memory.max_age is None:
        return
    if not any(stream.name == "robust" for stream in live_streams(config, game)):
        yield Fault(
            "game.memory.max_age",
            "a memory of hints feeds the stream robust, which is off: null is needed, or streams.robust.enabled true",
            about=("game.name", "streams.robust.enabled"),
        )


def hints_fit_prompts(config: Config) -> Iterator[Fault]:
    """A response that goes into another stage's prompt must leave room for the question there."""
    game = chosen_game(config)
    if game is None:
        return
    parents = {stage.parent for stage in game.stages if stage.parent is not None and stage.expand is None}
    limit = config.rollout.max_prompt_tokens
    for parent in sorted(parents):
        tokens = max_tokens(config, game, parent)
        if tokens >= limit:
            yield Fault(
                f"game.stages.{parent}.max_tokens",
                f"{tokens} tokens of {parent} leave no room for the question in a prompt of at most {limit} "
                "(rollout.max_prompt_tokens): lower one or raise the other",
                about=("rollout.max_prompt_tokens", "game.name"),
            )


def context_holds(config: Config, shape: Shape | None) -> Iterator[Fault]:
    """Question, hint and template (`rollout.max_prompt_tokens`) and the response must fit the model's context."""
    game = chosen_game(config)
    if game is None or shape is None:
        return
    prompt = config.rollout.max_prompt_tokens
    limits = {f"game.stages.{stage.name}.max_tokens": max_tokens(config, game, stage.name) for stage in game.stages}
    for name, benchmark in config.evaluation.benchmarks.items():
        if benchmark.max_tokens is not None:
            limits[f"evaluation.benchmarks.{name}.max_tokens"] = benchmark.max_tokens
    for key, tokens in limits.items():
        if prompt + tokens > shape.context:
            yield Fault(
                key,
                f"a prompt of {prompt} tokens (rollout.max_prompt_tokens) and a response of {tokens} are longer than "
                f"the model's context of {shape.context}: at most {max(shape.context - prompt, 0)} are left",
                about=("rollout.max_prompt_tokens", "game.name", *MODEL),
            )
