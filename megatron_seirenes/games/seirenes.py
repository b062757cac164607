"""The Seirênes game: one policy writes misleading hints and solves in spite of them (docs/games/seirenes.md).

R1 answers the question, R2 writes hints for it, R3 answers it under each hint. Three streams learn from that: clean
(Eq. 9), adversary (Eq. 11, 12) and robust (Eq. 13). A stage that was not run leaves the streams that need it without
groups; nothing else about the other streams changes, so credit never depends on which queues are full.

How a hint fares: *refused* by the role's gate, it earns the role's penalty and has no answers; *empty*, it has neither
answers nor credit; otherwise, truncated or not, it has exactly G3 judged answers, and anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from megatron_seirenes.games.credit import (
    CreditRules,
    all_judged,
    count_correct,
    group_id,
    relative_group,
    require_samples,
)
from megatron_seirenes.games.game import Game, Stage, Stream
from megatron_seirenes.records import Birth, Bundle, Group, Rollout

STAGES = (
    Stage(name="R1", role="reasoner", samples=8, max_tokens=16_384),
    Stage(name="R2", role="adversary", samples=2, max_tokens=2_048, judged=False),
    Stage(name="R3", role="reasoner", samples=8, max_tokens=16_384, parent="R2"),
)

STREAMS = (
    Stream(
        name="clean",
        trains_on="R1",
        needs=("R1",),
        objective="clipped",
        flush=128,
        capacity=512,
        max_lag=3,
        max_policy_lag=12,
    ),
    Stream(
        name="adversary",
        trains_on="R2",
        needs=("R1", "R2", "R3"),
        objective="reinforce",
        flush=256,
        capacity=1_024,
        max_lag=3,
        max_policy_lag=12,
        unit="hints",
    ),
    Stream(
        name="robust",
        trains_on="R3",
        needs=("R2", "R3"),
        objective="clipped",
        flush=128,
        capacity=512,
        max_lag=3,
        max_policy_lag=12,
        balance="question",
    ),
)


def assemble(stages: Sequence[Stage], streams: Sequence[Stream], rules: CreditRules) -> Game:
    """The game over these stages and streams, which are `STAGES` and some of `STREAMS` with other numbers."""
    by_name = {stage.name: stage for stage in stages}
    hinted = any("R3" in stream.needs for stream in streams)
    return Game(
        name="seirenes",
        stages=tuple(stages),
        streams=tuple(streams),
        credit=partial(_credit, stages=by_name, streams=tuple(stream.name for stream in streams), rules=rules),
        mastered=partial(_mastered, stages=by_name, criterion=rules.mastery if hinted else "clean"),
        clean_stage="R1",
        hinted_stage="R3" if hinted else None,
    )


def _credit(
    bundle: Bundle, birth: Birth, *, stages: Mapping[str, Stage], streams: Sequence[str], rules: CreditRules
) -> Mapping[str, Sequence[Group]]:
    clean = bundle.of_stage("R1")
    if clean:
        require_samples(bundle, stages["R1"], clean)
    hints = bundle.of_stage("R2")
    if hints:
        require_samples(bundle, stages["R2"], hints)
    answers = {hint.id: _answers(bundle, hint, stages["R3"]) for hint in hints}

    groups: dict[str, list[Group]] = {"clean": [], "adversary": [], "robust": []}
    if clean:
        groups["clean"] = [relative_group(bundle, birth, clean, stream="clean", rules=rules)]
    for hint in hints:
        under_hint = answers[hint.id]
        if clean and (under_hint or hint.id in bundle.refused):
            groups["adversary"].append(_hint_group(bundle, birth, hint, clean, under_hint, rules))
        if under_hint:
            path = hint.request.path
            groups["robust"].append(relative_group(bundle, birth, under_hint, stream="robust", rules=rules, path=path))
    return {name: groups[name] for name in streams}


def _answers(bundle: Bundle, hint: Rollout, r3: Stage) -> tuple[Rollout, ...]:
    """The R3 answers under one hint: all G3 of them, or none when it was refused or is empty."""
    answers = bundle.children("R3", hint)
    if hint.id in bundle.refused or not hint.text.strip():
        if answers:
            raise ValueError(f"problem {bundle.problem.id}, step {bundle.step}: hint {hint.id} must have no answers")
        return ()
    require_samples(bundle, r3, answers, under=f" under hint {hint.id}")
    return answers


def _hint_group(
    bundle: Bundle,
    birth: Birth,
    hint: Rollout,
    clean: Sequence[Rollout],
    under_hint: Sequence[Rollout],
    rules: CreditRules,
) -> Group:
    """One hint as a group of its own, whose advantage is its reward: Eq. 11, or the penalty when it was refused.

    Whether the hint carries signal is decided on integer counts, c1 G3 against c3 G1, not on a difference of floats.
    """
    if hint.id in bundle.refused:
        reward = rules.penalty(hint.request.role)
        signal = reward != 0
    else:
        gained = count_correct(bundle, clean) * len(under_hint) - count_correct(bundle, under_hint) * len(clean)
        reward = gained / (len(clean) * len(under_hint))
        signal = gained != 0
    return Group(
        id=group_id(bundle, "R2", hint.request.path),
        problem_id=bundle.problem.id,
        stream="adversary",
        stage="R2",
        rollouts=(hint,),
        rewards=(reward,),
        advantages=(reward,),
        has_signal=signal,
        birth=birth,
    )


def _mastered(bundle: Bundle, *, stages: Mapping[str, Stage], criterion: str) -> bool | None:
    """Eq. 14. None when an answer that the criterion looks at was not asked for or has no verdict.

    `all_hints`: every clean answer and every answer under each of the G2 hints is correct; a refused or an empty hint
    tested nothing, so then it cannot tell. `paper`: Eq. 14 to the letter looks only at hints whose answers survive the
    zero-signal filter, that is, are neither all right nor all wrong; such a hint has failures, so there must be none.
    `clean`: the clean answers alone.
    """
    clean = bundle.of_stage("R1")
    if not all_judged(bundle, stages["R1"], clean):
        return None
    solved = count_correct(bundle, clean) == len(clean)
    if criterion == "clean":
        return solved
    hints = bundle.of_stage("R2")
    tested = [bundle.children("R3", hint) for hint in hints if hint.id not in bundle.refused and hint.text.strip()]
    if len(hints) != stages["R2"].samples or not all(all_judged(bundle, stages["R3"], answers) for answers in tested):
        return None
    counts = [count_correct(bundle, answers) for answers in tested]
    samples = stages["R3"].samples
    if criterion == "paper":
        return solved and not any(0 < count < samples for count in counts)
    if len(tested) != len(hints):
        return None
    return solved and all(count == samples for count in counts)
