"""Which requests a stage makes of a problem: prompts, paths, names and seeds. Pure functions, no engine.

Invariants:
  * a request's id and seed depend on (step, problem, lineage) and never on when or where it was made, so that the same
    run asks the same questions on one replica and on eight, streamed or behind a barrier;
  * the requests of one asking share one prompt, built once.

It refuses no prompt for its length: the scheduler does, because what follows differs (a question is a fault of the
data, a hint is a fault of the hint).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from megatron_seirenes.games.game import Ask, Game, Stage
from megatron_seirenes.records import Problem, Request, Rollout, Sampling
from megatron_seirenes.seeds import stable_seed


class RoleLike(Protocol):
    """What the scheduler needs of a role: its prompt, and its opinion of what came back."""

    def prompt_ids(self, problem: Problem, context: dict[str, str]) -> tuple[int, ...]:
        """The tokens of the prompt, `context` (the parent's text, say) filled in."""

    def admit(self, text: str, problem: Problem) -> str | None:
        """Why a response is refused; None when it is admitted."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What all requests of one collection step share."""

    run_seed: int
    step: int
    temperature: float
    top_p: float


def lineage(game: Game, stage: Stage) -> tuple[str, ...]:
    """The names of a stage's ancestors, oldest first, and its own: `("R2", "R3")`."""
    names = [stage.name]
    while stage.parent is not None:
        stage = game.stage(stage.parent)
        names.append(stage.name)
    return tuple(reversed(names))


def queue_order(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages that start together, short ones first, so that those which others wait for end early; ties keep order."""
    return tuple(sorted(stages, key=lambda stage: stage.max_tokens))


def request_id(step: int, problem_id: str, stage: str, path: tuple[int, ...]) -> str:
    """A readable name, unique in a run: `12/gsm8k-5/R3.1.4`."""
    return f"{step}/{problem_id}/{'.'.join([stage, *map(str, path)])}"


def request_seed(drawing: Drawing, policy: str, problem_id: str, stages: Sequence[str], path: Sequence[int]) -> int:
    """A seed in [0, 2**63) from the run, the policy, the step, the problem and every ancestor's stage and index."""
    steps_down = [part for pair in zip(stages, path, strict=True) for part in pair]
    return stable_seed(drawing.run_seed, policy, drawing.step, problem_id, *steps_down)


def asks_of(stage: Stage, problem: Problem, parent: Rollout | None) -> Sequence[Ask]:
    """What a stage asks after `parent`: its own expansion, else one asking that is told the parent's text."""
    if stage.expand is not None:
        return stage.expand(parent, problem)
    return (Ask(context={} if parent is None else {stage.parent_as: parent.text}),)


def build_requests(
    game: Game, stage: Stage, role: RoleLike, problem: Problem, parent: Rollout | None, drawing: Drawing
) -> tuple[Request, ...]:
    """The requests of one stage under one parent (None: a stage without one), in order of path.

    The last number of a path counts the samples of all askings of the stage under that parent.
    """
    stages = lineage(game, stage)
    above = () if parent is None else parent.request.path
    sampling = Sampling(stage.max_tokens, drawing.temperature, drawing.top_p)
    requests: list[Request] = []
    for ask in asks_of(stage, problem, parent):
        prompt_ids = tuple(role.prompt_ids(problem, dict(ask.context)))
        for _ in range(stage.samples):
            path = (*above, len(requests))
            requests.append(
                Request(
                    id=request_id(drawing.step, problem.id, stage.name, path),
                    problem_id=problem.id,
                    stage=stage.name,
                    path=path,
                    role=stage.role,
                    policy=stage.policy,
                    prompt_ids=prompt_ids,
                    sampling=sampling,
                    seed=request_seed(drawing, stage.policy, problem.id, stages, path),
                    parent=None if parent is None else parent.id,
                    given_ids=ask.given_ids,
                )
            )
    return tuple(requests)
