import pytest

from megatron_seirenes.observe.report.attack import attack_statistics, moving_mean


def test_no_step_has_no_statistics() -> None:
    assert attack_statistics([]) is None


def test_one_step() -> None:
    found = attack_statistics([0.045])
    assert found is not None
    assert (found.tail, found.early, found.late, found.slope) == ((1, 1, 0), None, None, None)
    assert (found.longest_streak, found.strong_steps) == (0, 0)


def test_a_run_that_turns_strong() -> None:
    deltas = [0.0] * 30 + [0.06] * 2 + [0.035] + [0.06] * 3 + [0.05] * 4
    found = attack_statistics(deltas)
    assert found is not None
    assert found.steps == 40
    assert found.tail == pytest.approx((10 / 40, 9 / 40, 5 / 40))
    assert (found.early, found.late) == (0, 5 / 20)
    assert (found.longest_streak, found.strong_steps) == (3, 5)
    assert found.slope is not None
    assert found.slope > 0


def test_the_slope_is_that_of_the_moving_share() -> None:
    """One more strong step in each window: the moving share rises by 1/21 a step."""
    found = attack_statistics([0.0] * 21 + [0.1] * 10)
    assert found is not None
    assert found.slope == pytest.approx(1 / 21)


def test_moving_mean() -> None:
    assert moving_mean([1, 2, 3, 4], 2) == [1.5, 2.5, 3.5]
    assert moving_mean([1], 2) == []
