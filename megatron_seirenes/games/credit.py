"""What the credit functions of games share: rewards from verdicts, group-relative groups, and their ids.

Credit is a pure function of a complete bundle: it sees no queue, no clock and no other question, so that the same
rollouts earn the same credit whatever else is going on. A bundle that lacks a verdict or a rollout is refused with
ValueError: a success rate over the answers that happened to be judged would be biased, and silently so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from megatron_seirenes.games.game import Stage
from megatron_seirenes.objectives.advantages import DEFAULT_EPSILON, AdvantageKind, group_advantages, has_signal
from megatron_seirenes.objectives.overlong import overlong_penalty
from megatron_seirenes.records import Birth, Bundle, Group, Rollout

MasteryCriterion = Literal["all_hints", "paper", "clean"]

DEFAULT_GATE_PENALTY = -0.25


@dataclass(frozen=True, slots=True)
class CreditRules:
    """The knobs of credit that a configuration can turn, the same for every game.

    `gate_penalties` gives, for each role, the reward of a response that the role's gate refused. `overlong_penalty` is
    taken off the reward of a judged response that reaches its token limit, growing from 0 over the last
    `overlong_cache` tokens; `overlong_filter` leaves truncated responses out of the group that is trained on.
    """

    advantage_epsilon: float = DEFAULT_EPSILON
    advantage: AdvantageKind = "standardized"
    gate_penalties: Mapping[str, float] = field(default_factory=dict)
    mastery: MasteryCriterion = "all_hints"
    overlong_filter: bool = False
    overlong_penalty: float = 0.0
    overlong_cache: int = 4_096

    def penalty(self, role: str) -> float:
        return self.gate_penalties.get(role, DEFAULT_GATE_PENALTY)


def group_id(bundle: Bundle, stage: str, path: Sequence[int] = ()) -> str:
    """`step/problem/stage`, and the path of the rollout that the group hangs from or consists of: `12/gsm8k-7/R3/1`."""
    return "/".join([str(bundle.step), bundle.problem.id, stage, *map(str, path)])


def is_correct(bundle: Bundle, rollout: Rollout) -> bool:
    """Whether a response was judged correct; a refused one was not. Raises ValueError when its verdict is missing."""
    if rollout.id in bundle.refused:
        return False
    verdict = bundle.verdicts.get(rollout.id)
    if verdict is None:
        raise ValueError(f"problem {bundle.problem.id}, step {bundle.step}: rollout {rollout.id} has no verdict")
    return verdict.correct


def count_correct(bundle: Bundle, rollouts: Sequence[Rollout]) -> int:
    return sum(is_correct(bundle, rollout) for rollout in rollouts)


def require_samples(bundle: Bundle, stage: Stage, rollouts: Sequence[Rollout], under: str = "") -> None:
    """Raises ValueError unless there are exactly as many rollouts as one asking of the stage draws."""
    if len(rollouts) != stage.samples:
        raise ValueError(
            f"problem {bundle.problem.id}, step {bundle.step}: {len(rollouts)} rollouts of {stage.name}{under}, "
            f"{stage.samples} expected"
        )


def by_asking(bundle: Bundle, stage: Stage, rollouts: Sequence[Rollout]) -> list[Sequence[Rollout]]:
    """The rollouts of a stage without a parent, split into its askings. Raises ValueError when one is not whole."""
    groups = [rollouts[start : start + stage.samples] for start in range(0, len(rollouts), stage.samples)]
    for group in groups:
        require_samples(bundle, stage, group, under=f" from {group[0].id} on")
    return groups


def all_judged(bundle: Bundle, stage: Stage, rollouts: Sequence[Rollout]) -> bool:
    """Whether every rollout of one asking of the stage is here and has its verdict (or was refused)."""
    return len(rollouts) == stage.samples and all(
        rollout.id in bundle.verdicts or rollout.id in bundle.refused for rollout in rollouts
    )


def relative_group(
    bundle: Bundle,
    birth: Birth,
    rollouts: Sequence[Rollout],
    *,
    stream: str,
    rules: CreditRules,
    path: Sequence[int] = (),
) -> Group:
    """A group of judged responses to one prompt, each credited against the others (Eq. 2).

    Whether it has signal is decided before anything is taken off for length: a group whose answers are all right, or
    all wrong, teaches only brevity. Filtered responses are credited with the others and then left out.
    """
    outcomes = tuple(
        rules.penalty(rollout.request.role) if rollout.id in bundle.refused else float(is_correct(bundle, rollout))
        for rollout in rollouts
    )
    rewards = tuple(
        outcome - _overlong(rollout, rules) for outcome, rollout in zip(outcomes, rollouts, strict=True)
    )
    advantages = group_advantages(rewards, epsilon=rules.advantage_epsilon, kind=rules.advantage)
    kept = [i for i, rollout in enumerate(rollouts) if not (rules.overlong_filter and rollout.truncated)]
    stage = rollouts[0].request.stage
    return Group(
        id=group_id(bundle, stage, path),
        problem_id=bundle.problem.id,
        stream=stream,
        stage=stage,
        rollouts=tuple(rollouts[i] for i in kept),
        rewards=tuple(rewards[i] for i in kept),
        advantages=tuple(advantages[i] for i in kept),
        has_signal=has_signal(outcomes) and any(advantages[i] != 0 for i in kept),
        birth=birth,
    )


def _overlong(rollout: Rollout, rules: CreditRules) -> float:
    """What the length of a response costs it."""
    if rules.overlong_penalty == 0:
        return 0.0
    limit = rollout.request.sampling.max_tokens
    tokens = len(rollout.response_ids)
    return overlong_penalty(tokens, limit=limit, cache=rules.overlong_cache, penalty=rules.overlong_penalty)
