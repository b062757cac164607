"""When a bundle shows its question mastered (Eq. 14), and when it cannot tell."""

from __future__ import annotations

import dataclasses

import pytest
from bundle_maker import Hint, make_bundle

from megatron_seirenes.games.credit import CreditRules
from megatron_seirenes.games.registry import StreamOverrides, build_game

RIGHT, WRONG, MIXED = [True, True], [False, False], [True, False]


def mastered(criterion, clean, hints, **options):
    stages = {"R1": (2, None), "R2": (2, None), "R3": (2, None)}
    game = build_game("seirenes", stages=stages, rules=CreditRules(mastery=criterion), **options)
    return game.mastered(make_bundle(clean, hints))


@pytest.mark.parametrize(
    ("clean", "hints", "all_hints", "paper", "clean_only"),
    [
        (RIGHT, [Hint(RIGHT), Hint(RIGHT)], True, True, True),
        (MIXED, [Hint(RIGHT), Hint(RIGHT)], False, False, False),
        (RIGHT, [Hint(RIGHT), Hint(MIXED)], False, False, True),
        # A hint that always wins has no signal, so Eq. 14 to the letter does not see it.
        (RIGHT, [Hint(RIGHT), Hint(WRONG)], False, True, True),
        # Refused and empty hints tested nothing.
        (RIGHT, [Hint(RIGHT), Hint(refused=True)], None, True, True),
        (RIGHT, [Hint(text=""), Hint(RIGHT)], None, True, True),
        # Stages that were not run.
        (RIGHT, None, None, None, True),
        (None, [Hint(RIGHT), Hint(RIGHT)], None, None, None),
        (RIGHT, [Hint(RIGHT)], None, None, True),
        (RIGHT, [Hint(RIGHT), Hint([True])], None, None, True),
    ],
)
def test_criteria(clean, hints, all_hints, paper, clean_only):
    assert mastered("all_hints", clean, hints) is all_hints
    assert mastered("paper", clean, hints) is paper
    assert mastered("clean", clean, hints) is clean_only


@pytest.mark.parametrize("lost", ["R1/1", "R3/1/0"])
def test_a_missing_verdict_leaves_it_open(lost):
    game = build_game("seirenes", stages={"R1": (2, None), "R2": (2, None), "R3": (2, None)})
    bundle = make_bundle(RIGHT, [Hint(RIGHT), Hint(RIGHT)])
    kept = {key: verdict for key, verdict in bundle.verdicts.items() if key != lost}
    assert game.mastered(bundle) is True
    assert game.mastered(dataclasses.replace(bundle, verdicts=kept)) is None


def test_without_any_hinted_stream_the_clean_answers_decide():
    disabled = {name: StreamOverrides(enabled=False) for name in ("adversary", "robust")}
    assert mastered("all_hints", RIGHT, None, streams=disabled) is True


def test_grpo_looks_at_its_answers():
    game = build_game("grpo", stages={"R1": (2, None)})
    assert game.mastered(make_bundle(RIGHT)) is True
    assert game.mastered(make_bundle(MIXED)) is False
    assert game.mastered(make_bundle([True])) is None
