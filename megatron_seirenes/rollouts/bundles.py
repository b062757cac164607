"""Putting the rollouts of one problem together as its bundle. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from megatron_seirenes.records import Bundle, Problem, Rollout, Verdict


def assemble_bundle(
    problem: Problem,
    step: int,
    stages: Sequence[str],
    rollouts: Sequence[Rollout],
    verdicts: Mapping[str, Verdict],
    refused: Mapping[str, str],
) -> Bundle:
    """The bundle of one problem out of its own rollouts and what is known of them: stages in the given order."""
    return Bundle(
        problem=problem,
        step=step,
        rollouts={
            stage: tuple(sorted((r for r in rollouts if r.request.stage == stage), key=lambda r: r.request.path))
            for stage in stages
        },
        verdicts={r.id: verdicts[r.id] for r in rollouts if r.id in verdicts},
        refused={r.id: refused[r.id] for r in rollouts if r.id in refused},
    )
