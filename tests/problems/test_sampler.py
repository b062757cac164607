import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.config.schema import MasterySection
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.records import Problem

sizes = st.tuples(st.integers(1, 25), st.integers(1, 12), st.integers(0, 1000))


def pool(count: int) -> list[Problem]:
    return [Problem(f"p/{index}", f"q{index}", "1") for index in range(count)]


def sampler(count: int, per_step: int, seed: int = 0, **mastery) -> ProblemSampler:
    return ProblemSampler(pool(count), per_step, seed, MasterySection(**mastery))


def ids(batch: list[Problem]) -> list[str]:
    return [problem.id for problem in batch]


@given(sizes)
def test_no_question_is_skipped_or_doubled_within_an_epoch(size):
    """Replays the sampler's own account: a question leaves the epoch's queue exactly once."""
    count, per_step, seed = size
    drawn = sampler(count, per_step, seed)
    served: dict[int, Counter[str]] = {}
    for _ in range(40):
        before = drawn.state_dict()
        batch = Counter(ids(drawn.next_batch()))
        after = drawn.state_dict()
        if after["epoch"] == before["epoch"]:
            served.setdefault(before["epoch"], Counter()).update(batch)
            continue
        assert after["epoch"] == before["epoch"] + 1
        rest = Counter(before["queue"])
        assert not rest - batch
        served.setdefault(before["epoch"], Counter()).update(rest)
        served.setdefault(after["epoch"], Counter()).update(batch - rest)
    for epoch in range(max(served)):
        assert served[epoch] == Counter({f"p/{index}": 1 for index in range(count)})


@given(sizes, st.integers(0, 2**32))
def test_batches_are_full_without_repeats_and_never_hold_a_retired_question(size, luck):
    count, per_step, seed = size
    rng, drawn = Random(luck), sampler(count, per_step, seed)
    retired: set[str] = set()
    for _ in range(30):
        batch = ids(drawn.next_batch())
        assert len(batch) == len(set(batch)) == min(per_step, count - len(retired))
        assert not retired & set(batch)
        for problem_id in batch:
            mastered = rng.choice([True, False, False, None])
            drawn.observe(problem_id, mastered)
            if mastered:
                retired.add(problem_id)
        assert set(drawn.retired) == retired
        assert drawn.live_fraction == pytest.approx(1 - len(retired) / count)
        assert drawn.exhausted == (len(retired) == count)
    if drawn.exhausted:
        assert drawn.next_batch() == []


@settings(max_examples=50)
@given(sizes, st.integers(0, 20), st.integers(0, 2**32), st.integers(1, 3))
def test_saved_and_loaded_at_any_point_it_goes_on_identically(size, stop, luck, streak):
    count, per_step, seed = size

    def walk(drawn: ProblemSampler, rng: Random, steps: int) -> list[list[str]]:
        batches = []
        for _ in range(steps):
            batches.append(ids(drawn.next_batch()))
            for problem_id in batches[-1]:
                drawn.observe(problem_id, rng.choice([True, True, False, None]))
        return batches

    whole_rng, whole = Random(luck), sampler(count, per_step, seed, streak=streak)
    walk(whole, whole_rng, stop)
    saved = json.loads(json.dumps(whole.state_dict()))
    rng_state = whole_rng.getstate()
    expected = walk(whole, whole_rng, 15)

    resumed_rng, resumed = Random(), sampler(count, per_step, seed, streak=streak)
    resumed_rng.setstate(rng_state)
    resumed.load_state_dict(saved)
    assert walk(resumed, resumed_rng, 15) == expected
    assert resumed.state_dict() == whole.state_dict()


@given(st.lists(st.sampled_from([True, False, None]), max_size=30), st.integers(1, 4))
def test_retirement_is_exactly_a_streak(evidence, streak):
    drawn = sampler(2, 1, streak=streak)
    run, expected = 0, False
    for mastered in evidence:
        drawn.observe("p/0", mastered)
        if mastered is not None:
            run = run + 1 if mastered else 0
        expected = expected or run >= streak
        assert (drawn.retired == ("p/0",)) == expected
        assert "p/1" not in drawn.retired


def test_a_batch_that_crosses_epochs_puts_repeats_off_and_keeps_them():
    """Five questions, four a step, so that every batch but the first crosses a boundary."""
    drawn = sampler(5, 4)
    asked = [problem_id for _ in range(5) for problem_id in ids(drawn.next_batch())]
    assert Counter(asked) == Counter({f"p/{index}": 4 for index in range(5)})


def test_epochs_are_shuffled_differently_and_by_the_seed():
    one, other = sampler(20, 20, seed=1), sampler(20, 20, seed=2)
    first, second = ids(one.next_batch()), ids(one.next_batch())
    assert first != second
    assert sorted(first) == sorted(second)
    assert ids(other.next_batch()) != first
    assert ids(sampler(20, 20, seed=1).next_batch()) == first


def test_mastery_switched_off_retires_nothing():
    drawn = sampler(3, 3, enabled=False)
    drawn.observe("p/0", True)
    assert drawn.retired == ()
    assert len(drawn.next_batch()) == 3


def test_refusals():
    with pytest.raises(DataError, match="holds no problems"):
        ProblemSampler([], 1, 0, MasterySection())
    with pytest.raises(DataError, match="not unique: p/0"):
        ProblemSampler(pool(2) + pool(1), 1, 0, MasterySection())
    with pytest.raises(ValueError, match="not in the pool"):
        sampler(2, 1).observe("p/9", True)
    with pytest.raises(DataError, match="other problems"):
        sampler(2, 1).load_state_dict(sampler(3, 1).state_dict())
    with pytest.raises(DataError, match="has seed 1, this run's 0"):
        sampler(2, 1, seed=0).load_state_dict(sampler(2, 1, seed=1).state_dict())


def test_more_questions_of_a_step_are_others_and_keep_the_epoch_whole():
    problems = [Problem(f"q{i}", "?", "1") for i in range(5)]
    sampler = ProblemSampler(problems, 2, 0, MasterySection())
    first = [problem.id for problem in sampler.next_batch()]
    second = [problem.id for problem in sampler.next_batch(without=first)]
    third = [problem.id for problem in sampler.next_batch(without=[*first, *second])]
    assert sorted(first + second + third) == [f"q{i}" for i in range(5)]
    assert sampler.next_batch(without=[*first, *second, *third]) == []
    assert len(sampler.next_batch()) == 2


@given(sizes, st.randoms(use_true_random=False))
def test_revisited_questions_are_retired_ones_and_can_be_live_again(size, luck):
    """Batches hold at most the revisit share of retired questions; what fails there is asked as before."""
    count, per_step, seed = size
    drawn = sampler(count, per_step, seed, revisit=0.5)
    for _ in range(12):
        if drawn.exhausted:
            break
        retired, live = set(drawn.retired), count - len(drawn.retired)
        batch = ids(drawn.next_batch())
        revisited = [problem_id for problem_id in batch if problem_id in retired]
        assert len(batch) == len(set(batch))
        assert len(revisited) == min(int(per_step * 0.5), len(retired))
        assert len(batch) - len(revisited) == min(per_step - len(revisited), live)
        for problem_id in batch:
            mastered = luck.random() < 0.6
            drawn.observe(problem_id, mastered)
            assert (problem_id in drawn.retired) == mastered


def test_revisits_depend_on_the_state_alone():
    first = sampler(20, 8, revisit=0.25)
    for problem_id in ids(first.next_batch())[:6]:
        first.observe(problem_id, True)
    second = sampler(20, 8, revisit=0.25)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [ids(first.next_batch()) for _ in range(6)] == [ids(second.next_batch()) for _ in range(6)]
    assert first.saved_fraction == second.saved_fraction


def test_without_revisits_a_retired_question_stays_retired():
    drawn = sampler(4, 2)
    drawn.observe("p/0", True)
    drawn.observe("p/0", False)
    assert drawn.retired == ("p/0",)


def test_what_retirement_saved_is_the_mean_retired_share():
    """Appendix D: of T_R1 + G2 T_R3 a step the share |M| / |D| is saved, whatever the times are."""
    drawn = sampler(10, 2)
    assert drawn.saved_fraction == 0.0
    shares = []
    for step in range(5):
        shares.append(len(drawn.retired) / 10)
        batch = drawn.next_batch()
        drawn.observe(batch[0].id, True)
        assert drawn.saved_fraction == pytest.approx(sum(shares) / (step + 1))
