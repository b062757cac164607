"""Attack strength from metrics.jsonl, on synthetic series with known answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.evaluation.attack_strength import read_attack_statistics


def metrics(tmp_path, deltas):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": n, "attack/delta": d}) + "\n" for n, d in enumerate(deltas, start=1)))
    return path


def test_a_ramp_of_strong_steps_has_the_slope_of_its_moving_mean(tmp_path):
    """No strong step, then strong ones only: the 21-step mean climbs, and numpy's fit over it is the slope."""
    deltas = [0.0] * 60 + [0.06] * 40
    found = read_attack_statistics(metrics(tmp_path, deltas))
    strong = np.array([delta > 0.05 for delta in deltas], dtype=float)
    moving = np.convolve(strong, np.ones(21) / 21, mode="valid")
    assert found.slope == pytest.approx(np.polyfit(np.arange(len(moving)), moving, 1)[0])
    assert (found.early, found.late) == (0.0, 0.8)
    assert (found.longest_streak, found.strong_steps, found.steps) == (40, 40, 100)


def test_short_runs_have_no_slope_and_the_threshold_is_not_strong(tmp_path):
    found = read_attack_statistics(metrics(tmp_path, [0.05] * 20 + [0.051]))
    assert found.slope is None and found.strong_steps == 1 and found.tail == (1.0, 1.0, pytest.approx(1 / 21))


def test_the_common_range_and_steps_without_a_delta(tmp_path):
    path = metrics(tmp_path, [0.06, None, 0.0, 0.06, 0.06, 0.0])
    assert read_attack_statistics(path).steps == 5
    assert read_attack_statistics(path, last=4).strong_steps == 2
    assert read_attack_statistics(path, first=5).longest_streak == 1
    assert read_attack_statistics(path, first=7) is None


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone.jsonl: no such file"):
        read_attack_statistics(tmp_path / "gone.jsonl")
    path = metrics(tmp_path, [0.1])
    path.write_text(path.read_text() + "[]\n")
    with pytest.raises(DataError, match=r"metrics.jsonl, row 2: no row of metrics"):
        read_attack_statistics(path)
