"""GRPO as a game: one stage, one stream (docs/games/grpo.md).

DAPO, Dr.GRPO, RLOO and GSPO are the same game under other settings of the objective (yaml_configs/games/); dropping
groups without signal, and asking more questions until a flush is full, are properties of the streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from megatron_seirenes.games.credit import CreditRules, all_judged, count_correct, relative_group, require_samples
from megatron_seirenes.games.defaults import ANSWERS, CLEAN
from megatron_seirenes.games.game import Game, Stage, Stream
from megatron_seirenes.games.options import GameOptions
from megatron_seirenes.records import Birth, Bundle, Group

STAGES = (ANSWERS,)

STREAMS = (CLEAN,)


def assemble(stages: Sequence[Stage], streams: Sequence[Stream], rules: CreditRules, options: GameOptions) -> Game:
    """The game over these stages and streams, which are `STAGES` and `STREAMS` with other numbers."""
    (r1,) = stages
    return Game(
        name="grpo",
        stages=tuple(stages),
        streams=tuple(streams),
        credit=partial(_credit, r1=r1, rules=rules),
        mastered=partial(_mastered, r1=r1),
        clean_stage="R1",
    )


def _credit(bundle: Bundle, birth: Birth, *, r1: Stage, rules: CreditRules) -> Mapping[str, Sequence[Group]]:
    answers = bundle.of_stage("R1")
    if not answers:
        return {"clean": []}
    require_samples(bundle, r1, answers)
    return {"clean": [relative_group(bundle, birth, answers, stream="clean", rules=rules)]}


def _mastered(bundle: Bundle, *, r1: Stage) -> bool | None:
    """All answers correct, whatever criterion is configured: there are no hints to look at."""
    answers = bundle.of_stage("R1")
    if not all_judged(bundle, r1, answers):
        return None
    return count_correct(bundle, answers) == len(answers)
