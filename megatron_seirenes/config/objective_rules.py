"""Rules about objectives: settings that would have no effect, or no meaning, together."""

from __future__ import annotations

from collections.abc import Iterator

from megatron_seirenes.config.faults import Fault
from megatron_seirenes.config.game_rules import chosen_game, max_tokens
from megatron_seirenes.config.schema import Config


def correction_settings(config: Config) -> Iterator[Fault]:
    """A correction compares the engine with the actor, so old log-probabilities must be the actor's."""
    objective = config.objective
    if objective.correction != "none" and config.rollout.behaviour_logprobs == "engine":
        yield Fault(
            "objective.correction",
            f"{objective.correction} has no effect with rollout.behaviour_logprobs engine: the ratio would always be 1",
            about=("rollout.behaviour_logprobs",),
        )


def overlong_slope(config: Config) -> Iterator[Fault]:
    """The slope of the overlong penalty must fit below the token limit of every judged stage."""
    game = chosen_game(config)
    if game is None or config.objective.overlong_penalty == 0:
        return
    shortest = min(max_tokens(config, game, stage.name) for stage in game.stages if stage.judged)
    if config.objective.overlong_cache > shortest:
        yield Fault(
            "objective.overlong_cache",
            f"{config.objective.overlong_cache} tokens are more than the {shortest} that a judged stage may take",
            about=("objective.overlong_penalty", "game.name"),
        )
