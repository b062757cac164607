"""The games that can be played, by name, and how a configuration changes their numbers.

A game is a row of `_RECIPES`: its stages and streams with the defaults, and the function that joins them to its credit.
Overrides for a stage or stream that the game does not have are ignored, so that one file of settings serves every game.
Knows no configuration schema; whoever reads one turns it into the plain arguments of `build_game`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from megatron_seirenes.errors import UsageError
from megatron_seirenes.games import grpo, hinted, seirenes
from megatron_seirenes.games.credit import CreditRules
from megatron_seirenes.games.game import Game, Stage, Stream, check_game
from megatron_seirenes.games.options import GameOptions

CAPACITY_IN_FLUSHES = 4

PRESETS: dict[str, str] = {
    "dapo": "grpo",
    "dapo_24": "grpo",
    "dapo_fifo": "grpo",
    "dr_grpo": "grpo",
    "rloo": "grpo",
    "gspo": "grpo",
    "seirenes_frozen_adversary": "seirenes",
    "seirenes_grouped": "seirenes",
    "seirenes_memory": "seirenes",
}
"""Methods that are a game under other settings: files of yaml_configs/games/, with the game that each plays."""


@dataclass(frozen=True, slots=True)
class StreamOverrides:
    """Changes to one stream; None keeps the game's default. `capacity` follows `flush` (four times) unless given."""

    enabled: bool = True
    flush: int | None = None
    capacity: int | None = None
    max_lag: int | None = None
    max_policy_lag: int | None = None
    max_flushes: int | None = None
    max_rounds: int | None = None


@dataclass(frozen=True, slots=True)
class _Recipe:
    stages: tuple[Stage, ...]
    streams: tuple[Stream, ...]
    assemble: Callable[[Sequence[Stage], Sequence[Stream], CreditRules, GameOptions], Game]


_RECIPES: dict[str, _Recipe] = {
    "seirenes": _Recipe(seirenes.STAGES, seirenes.STREAMS, seirenes.assemble),
    "grpo": _Recipe(grpo.STAGES, grpo.STREAMS, grpo.assemble),
    "static_hints": _Recipe(hinted.STAGES, hinted.STATIC_STREAMS, hinted.assemble_static),
    "cooperative_hints": _Recipe(hinted.STAGES, hinted.COOPERATIVE_STREAMS, hinted.assemble_cooperative),
}


def game_names() -> tuple[str, ...]:
    """The names that `build_game` knows."""
    return tuple(_RECIPES)


def default_game(name: str) -> Game:
    """The game with all defaults. Raises UsageError for an unknown name."""
    return build_game(name)


def build_game(
    name: str,
    *,
    stages: Mapping[str, tuple[int | None, int | None]] | None = None,
    streams: Mapping[str, StreamOverrides] | None = None,
    rules: CreditRules | None = None,
    options: GameOptions | None = None,
) -> Game:
    """The game `name` under overrides: (samples, max_tokens) a stage, `StreamOverrides` a stream, rules of credit,
    options of the game.

    A disabled stream is left out of the game. Raises UsageError for an unknown name, a capacity below its flush, and
    when every stream is disabled.
    """
    recipe = _RECIPES.get(name)
    if recipe is None:
        raise UsageError(f"game.name: {name!r} is not a game; {preset_advice(name)}known games: {', '.join(_RECIPES)}")
    chosen_stages = [_override_stage(stage, *(stages or {}).get(stage.name, (None, None))) for stage in recipe.stages]
    wanted = {stream.name: (streams or {}).get(stream.name, StreamOverrides()) for stream in recipe.streams}
    chosen_streams = [
        _override_stream(stream, wanted[stream.name]) for stream in recipe.streams if wanted[stream.name].enabled
    ]
    if not chosen_streams:
        raise UsageError(f"streams: every stream of game {name} is disabled ({', '.join(wanted)}); enable at least one")
    game = recipe.assemble(chosen_stages, chosen_streams, rules or CreditRules(), options or GameOptions())
    return check_game(game)


def preset_advice(name: str) -> str:
    """What to do instead when a preset was named as a game; empty for any other name."""
    if name not in PRESETS:
        return ""
    return f"it is the game {PRESETS[name]} under the settings of yaml_configs/games/{name}.yaml: extend that file; "


def _override_stage(stage: Stage, samples: int | None, max_tokens: int | None) -> Stage:
    return replace(
        stage,
        samples=stage.samples if samples is None else samples,
        max_tokens=stage.max_tokens if max_tokens is None else max_tokens,
    )


def _override_stream(stream: Stream, overrides: StreamOverrides) -> Stream:
    flush = stream.flush if overrides.flush is None else overrides.flush
    capacity = CAPACITY_IN_FLUSHES * flush if overrides.capacity is None else overrides.capacity
    if capacity < flush:
        raise UsageError(
            f"streams.{stream.name}.capacity: {capacity} is below streams.{stream.name}.flush ({flush}): "
            f"the stream could never fill a flush; allowed is {flush} or more"
        )
    return replace(
        stream,
        flush=flush,
        capacity=capacity,
        max_lag=stream.max_lag if overrides.max_lag is None else overrides.max_lag,
        max_policy_lag=stream.max_policy_lag if overrides.max_policy_lag is None else overrides.max_policy_lag,
        max_flushes=stream.max_flushes if overrides.max_flushes is None else overrides.max_flushes,
        max_rounds=stream.max_rounds if overrides.max_rounds is None else overrides.max_rounds,
    )
