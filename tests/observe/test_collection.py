import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observe_samples import bundle, one_stage_game, rollout, three_stage_game, verdict

from megatron_seirenes.observe.collection import Tally, collection_metrics, tally_bundles, tally_metrics
from megatron_seirenes.observe.metrics import validate_row
from megatron_seirenes.records import Bundle

GAME = three_stage_game()


def test_success_is_the_mean_over_questions_and_over_pairs() -> None:
    bundles = [
        bundle("a", (True, True), {"h1": (True, False), "h2": (False, False)}),
        bundle("b", (True, False), {"h3": (True, True)}),
    ]
    row = collection_metrics(GAME, bundles)
    assert row["success/clean"] == 0.75
    assert row["success/hinted"] == 0.5
    assert row["attack/delta"] == 0.25
    assert row["attack/strong"] == 1
    validate_row({"step": 1, **row}, stages=[stage.name for stage in GAME.stages])


def test_groups_of_unequal_size_weigh_the_same() -> None:
    row = collection_metrics(GAME, [bundle("a", (True,)), bundle("b", (False, False, False))])
    assert row["success/clean"] == 0.5


def test_two_hints_of_the_same_words_are_two_pairs() -> None:
    one = bundle("a", (True,), {"h1": (True,), "h2": (False, False, False)})
    same = [replace(item, request=replace(item.request, prompt_ids=(1,))) for item in one.of_stage("tempted")]
    one = replace(one, rollouts={**one.rollouts, "tempted": tuple(same)})
    assert collection_metrics(GAME, [one])["success/hinted"] == 0.5


def test_the_threshold_of_a_strong_attack_is_exact() -> None:
    twenty = bundle("a", (True,) * 20, {"h": (True,) * 19 + (False,)})
    assert collection_metrics(GAME, [twenty])["attack/strong"] == 0
    more = bundle("a", (True,) * 20, {"h": (True,) * 18 + (False,) * 2})
    assert collection_metrics(GAME, [more])["attack/strong"] == 1


def test_hints_that_help_give_a_negative_delta() -> None:
    assert collection_metrics(GAME, [bundle("a", (False, False), {"h": (True, True)})])["attack/delta"] == -1


def test_what_did_not_run_is_null() -> None:
    row = collection_metrics(GAME, [bundle("a", (True, False))])
    absent = (
        "success/hinted",
        "attack/delta",
        "attack/strong",
        "hints/distinct_fraction",
        "hints/refused_fraction",
        "hints/entropy",
        "length/lure/mean",
        "length/lure/max",
        "truncated/tempted",
    )
    assert {key: row[key] for key in absent} == dict.fromkeys(absent)
    empty = collection_metrics(GAME, [])
    assert empty["success/clean"] is None
    assert empty["tokens/generated"] == 0
    assert empty["verifier/judged"] == 0


def test_a_game_without_hints_has_no_hinted_success() -> None:
    row = collection_metrics(one_stage_game(), [bundle("a", (True, False))])
    assert row["success/clean"] == 0.5
    assert row["success/hinted"] is None
    assert not any("lure" in key for key in row)


def test_only_judged_answers_count() -> None:
    one = bundle("a", (True, True))
    first = one.of_stage("plain")[0]
    one = replace(one, verdicts={first.id: one.verdicts[first.id]})
    assert collection_metrics(GAME, [one])["success/clean"] == 1.0
    assert collection_metrics(GAME, [replace(one, verdicts={})])["success/clean"] is None


def test_lengths_and_truncation_by_stage() -> None:
    row = collection_metrics(GAME, [bundle("a", (True, True, True), {"h": (True,)})])
    assert (row["length/plain/mean"], row["length/plain/max"], row["truncated/plain"]) == (2.0, 3, 0.0)
    assert (row["length/tempted/mean"], row["truncated/tempted"]) == (4.0, 1.0)
    assert row["tokens/generated"] == 1 + 2 + 3 + 3 + 4


def test_scored_tokens_are_not_generated_ones() -> None:
    scored = rollout("a", "plain", (0,), length=9, given=True)
    one = Bundle(bundle("a", (True,)).problem, 1, {"plain": (scored,)})
    row = collection_metrics(GAME, [one])
    assert row["tokens/generated"] == 0
    assert row["length/plain/max"] == 9


def test_judging_is_counted_by_reason() -> None:
    one = bundle("a", (True, False, False))
    names = [item.id for item in one.of_stage("plain")]
    verdicts = (verdict(True, seconds=1.0), verdict(False, "timeout", 5.0), verdict(False, "no_answer", 0.0))
    row = collection_metrics(GAME, [replace(one, verdicts=dict(zip(names, verdicts, strict=True)))])
    assert [row[f"verifier/{key}"] for key in ("judged", "timeouts", "no_answer", "seconds")] == [3, 1, 1, 6.0]


def test_hints_are_counted_by_their_text() -> None:
    one = bundle("a", (True,), {"same": (True,), "other": (True,)}, refused=["other"])
    two = bundle("b", (True,), {" same ": (True,), "third": (True,)})
    row = collection_metrics(GAME, [one, two])
    assert row["hints/distinct_fraction"] == 0.75
    assert row["hints/entropy"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))
    assert row["hints/refused_fraction"] == 0.25


marks = st.lists(st.booleans(), min_size=1, max_size=7)
drawn = st.builds(
    bundle, st.sampled_from("abc"), marks, st.dictionaries(st.sampled_from(["x", "y", "z"]), marks, max_size=3)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(drawn, max_size=6), st.data())
def test_metrics_do_not_depend_on_how_bundles_are_split_over_ranks(bundles: list[Bundle], data: st.DataObject) -> None:
    whole = collection_metrics(GAME, bundles)
    cut = data.draw(st.integers(0, len(bundles)))
    parts = [tally_bundles(GAME, bundles[:cut]), tally_bundles(GAME, bundles[cut:])]
    assert tally_metrics(GAME, sum(data.draw(st.permutations(parts)), Tally())) == whole


@settings(max_examples=40, deadline=None)
@given(st.lists(drawn, min_size=1, max_size=6))
def test_success_agrees_with_plain_loops(bundles: list[Bundle]) -> None:
    row = collection_metrics(GAME, bundles)
    clean, hinted = [], []
    for one in bundles:
        right = [one.verdicts[item.id].correct for item in one.of_stage("plain")]
        clean.append(sum(right) / len(right))
        for lure in one.of_stage("lure"):
            under = [one.verdicts[item.id].correct for item in one.children("tempted", lure)]
            hinted.append(sum(under) / len(under))
    assert row["success/clean"] == pytest.approx(sum(clean) / len(clean))
    assert row["success/hinted"] == (pytest.approx(sum(hinted) / len(hinted)) if hinted else None)
