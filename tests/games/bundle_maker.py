"""Bundles made by hand: which answers are right, and how each hint fared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from megatron_seirenes.records import Birth, Bundle, FinishReason, Problem, Request, Rollout, Sampling, Verdict

BIRTH = Birth(step=3, policy_version=5, stream_updates={"clean": 2, "adversary": 1, "robust": 2})
PROBLEM = Problem(id="p7", question="1+1?", answer="2")


@dataclass(frozen=True)
class Hint:
    """`right` are the verdicts of the answers under it; a refused or empty hint has none."""

    right: Sequence[bool] = ()
    refused: bool = False
    text: str = "note that 1+1 is 3"
    finish_reason: FinishReason = "stop"


@dataclass
class Making:
    rollouts: dict[str, list[Rollout]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def add(
        self, stage: str, path: tuple[int, ...], right: bool | None, parent: str | None = None, hint: Hint | None = None
    ):
        name = "/".join([stage, *map(str, path)])
        request = Request(
            id=name,
            problem_id=PROBLEM.id,
            stage=stage,
            path=path,
            role="adversary" if stage == "R2" else "reasoner",
            policy="shared",
            prompt_ids=(1, 2),
            sampling=Sampling(max_tokens=8),
            seed=0,
            parent=parent,
        )
        rollout = Rollout(
            request=request,
            response_ids=(3, 4),
            behaviour_logprobs=(-0.5, -0.25),
            finish_reason=hint.finish_reason if hint else "stop",
            policy_version=5,
            text=hint.text if hint else "text",
        )
        self.rollouts.setdefault(stage, []).append(rollout)
        if right is not None:
            self.verdicts[name] = Verdict(right, None, "match" if right else "mismatch", 0.0)
        if hint is not None and hint.refused:
            self.refused[name] = "the gate said no"
        return rollout


def make_bundle(clean: Sequence[bool] | None, hints: Sequence[Hint] | None = None) -> Bundle:
    """A bundle of R1 verdicts (None: R1 was not run) and hints (None: R2 and R3 were not run)."""
    making = Making()
    for index, right in enumerate(clean or ()):
        making.add("R1", (index,), right)
    for k, hint in enumerate(hints or ()):
        parent = making.add("R2", (k,), None, hint=hint)
        for j, right in enumerate(hint.right):
            making.add("R3", (k, j), right, parent=parent.id)
    return Bundle(
        problem=PROBLEM,
        step=3,
        rollouts={stage: tuple(rollouts) for stage, rollouts in making.rollouts.items()},
        verdicts=making.verdicts,
        refused=making.refused,
    )
