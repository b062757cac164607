"""What a game is: data that says which rollouts a problem needs, and one pure function that credits them.

A `Game` names its stages (who is asked what, after which other stage), its streams (which stage each trains on, which
stages it needs, how it is updated) and a `credit` function. Scheduler, streams, trainer and metrics read this data and
know no game by name; a new game is a new file in this folder and a YAML file.

Invariants that `check_game` holds: names are unique, a parent stands before its children, a stream trains on and needs
stages that exist. What it refuses is a bug of the game's author, so it raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from megatron_seirenes.records import Birth, Bundle, Group, Problem, Rollout

ObjectiveName = Literal["clipped", "reinforce"]
Balance = Literal["group", "question"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that a stage wants: what the role is told beside the problem, and the tokens to score, if any."""

    context: Mapping[str, str]
    given_ids: tuple[int, ...] | None = None


Expand = Callable[[Rollout | None, Problem], Sequence[Ask]]
When = Callable[[Bundle], bool]


@dataclass(frozen=True, slots=True)
class Stage:
    """One round of asking.

    A stage without a parent is asked once a problem; a stage with one is asked for every rollout of the parent that
    was neither refused by its role's gate nor empty. Each asking draws `samples` responses of at most `max_tokens`.
    `parent_as` names the context key under which the parent's text reaches the prompt (`hint`). `expand` replaces the
    default asking; `judged` sends responses to the verifier against the problem's answer. A stage with `when`, which
    has no parent, waits until everything else of the batch is generated and judged, and is then asked of the problems
    whose bundle says so: what it depends on is verdicts, never when they came.
    """

    name: str
    role: str
    samples: int
    max_tokens: int
    policy: str = "shared"
    parent: str | None = None
    parent_as: str = "hint"
    judged: bool = True
    expand: Expand | None = None
    when: When | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """One queue of groups and how it is learned from.

    `max_rounds` is how many batches of questions a collection step asks at most while the stream lacks a flush.
    `balance` says over what the loss is averaged: `group` gives every group of a flush the same weight, `question`
    first averages the groups of one question and collection step, then over questions (Eq. 13). `unit` is what its
    counters count, for people.
    """

    name: str
    trains_on: str
    needs: tuple[str, ...]
    objective: ObjectiveName
    flush: int
    capacity: int
    max_lag: int
    max_policy_lag: int
    max_flushes: int = 1
    max_rounds: int = 1
    balance: Balance = "group"
    unit: str = "groups"


Credit = Callable[[Bundle, Birth], Mapping[str, Sequence[Group]]]
Mastered = Callable[[Bundle], bool | None]
Unplayable = Callable[[Problem], str | None]


class Memory(Protocol):
    """What a game remembers between collection steps, read by its stages' `expand`; part of a snapshot."""

    def begin_step(self, step: int) -> None:
        """A step begins; what is too old is forgotten. Calling it twice for a step changes nothing."""

    def note(self, bundle: Bundle) -> Mapping[str, Any] | None:
        """What is worth remembering of a complete bundle, as plain data; pure."""

    def remember(self, notes: Sequence[Mapping[str, Any]]) -> None:
        """Takes in the notes of a step, in the order of its questions."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Game:
    """A game. `clean_stage` and `hinted_stage` say whose success the metrics call clean and hinted.

    `credit` sees a complete bundle before any filtering and returns every group of every stream, those without signal
    included. `mastered` says whether the bundle shows its question mastered; None when it cannot tell. `unplayable`
    says why a problem cannot be played (no hint is known for it, say), None when it can. `memory` is the only part of
    a game that changes.
    """

    name: str
    stages: tuple[Stage, ...]
    streams: tuple[Stream, ...]
    credit: Credit
    mastered: Mastered
    clean_stage: str
    hinted_stage: str | None = None
    unplayable: Unplayable | None = None
    memory: Memory | None = None

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def stream(self, name: str) -> Stream:
        return next(stream for stream in self.streams if stream.name == name)


def check_game(game: Game) -> Game:
    """The game itself, when its stages and streams fit together. Raises ValueError."""
    seen: set[str] = set()
    for stage in game.stages:
        if stage.name in seen:
            raise ValueError(f"game {game.name}: stage {stage.name} is named twice")
        if stage.parent is not None and stage.parent not in seen:
            raise ValueError(
                f"game {game.name}: stage {stage.name} has parent {stage.parent}, which does not stand before it"
            )
        if stage.when is not None and stage.parent is not None:
            raise ValueError(f"game {game.name}: stage {stage.name} has both a parent and a condition; keep one")
        seen.add(stage.name)
    streams: set[str] = set()
    for stream in game.streams:
        if stream.name in streams:
            raise ValueError(f"game {game.name}: stream {stream.name} is named twice")
        streams.add(stream.name)
        unknown = {stream.trains_on, *stream.needs} - seen
        if unknown:
            raise ValueError(
                f"game {game.name}: stream {stream.name} needs stages that do not exist: {sorted(unknown)}"
            )
    return game


def live_stages(game: Game, suspended: frozenset[str]) -> tuple[Stage, ...]:
    """The stages that some stream outside `suspended` needs, with all their ancestors, in the game's order."""
    wanted = {
        name for stream in game.streams if stream.name not in suspended for name in (stream.trains_on, *stream.needs)
    }
    for stage in reversed(game.stages):
        if stage.name in wanted and stage.parent is not None:
            wanted.add(stage.parent)
    return tuple(stage for stage in game.stages if stage.name in wanted)
