"""Warm-up on a toy actor: phases end when they should, rates and batches are what the configuration says."""

from types import SimpleNamespace

import pytest

from megatron_seirenes.actor.sequences import TokenSequence, UpdateReport
from megatron_seirenes.config.schema import WarmupPhase
from megatron_seirenes.errors import DataError, SeirenesError
from megatron_seirenes.problems.supervised import Record
from megatron_seirenes.trainer.warmup import encode_records, endless_batches, learning_rate, run_phase, weighted

SEQUENCES = [TokenSequence((1,), tuple(range(length))) for length in (1, 2, 3, 4)]


class Actor:
    """Its loss is what the script says; it remembers what it was given."""

    def __init__(self, losses, skipped=False):
        self.losses, self.skipped, self.calls = iter(losses), skipped, []

    def update(self, sequences, loss, learning_rate):
        self.calls.append((sequences, learning_rate))
        return UpdateReport(next(self.losses), 1.0, learning_rate, {}, 1, self.skipped)


def phase(**settings) -> WarmupPhase:
    return WarmupPhase(**{"records": "x", "steps": 10, "batch_size": 2, "ramp_steps": 0, **settings})


def test_a_phase_makes_all_its_steps_without_a_target():
    actor = Actor([1.0] * 10)
    assert run_phase(actor, phase(), SEQUENCES, 0, lambda loss, rate: None).steps == 10


def test_a_phase_ends_at_its_target_but_not_before_min_steps():
    seen = []
    result = run_phase(
        Actor([0.0] * 10), phase(until_loss=0.5, min_steps=4), SEQUENCES, 0, lambda *said: seen.append(said)
    )
    assert result.steps == 4 and len(seen) == 4


def test_the_target_is_held_against_the_moving_mean():
    result = run_phase(Actor([1.0, 0.0, 0.0, 0.0]), phase(steps=4, until_loss=0.75), SEQUENCES, 0, lambda *said: None)
    assert result.steps == 4 and result.loss == pytest.approx(0.9**3)


def test_a_gradient_that_is_not_finite_ends_the_warm_up():
    with pytest.raises(SeirenesError, match="update 1 is not finite"):
        run_phase(Actor([1.0], skipped=True), phase(), SEQUENCES, 0, lambda *said: None)


def test_the_rate_ramps_and_decays():
    ramped = phase(steps=101, lr=1.0, ramp_steps=10, decay=0.0)
    assert learning_rate(ramped, 1) == pytest.approx(0.1)
    assert learning_rate(ramped, 101) == pytest.approx(0.0)
    assert learning_rate(phase(lr=1.0), 7) == 1.0


def test_weights_make_the_summed_loss_a_mean_over_response_tokens():
    batch = weighted(SEQUENCES)
    assert sum(s.weight * len(s.response_ids) for s in batch) == pytest.approx(1.0)


def test_an_epoch_asks_every_record_once_in_an_order_of_its_own():
    batches = endless_batches(6, 3, seed=1)
    first, second = [*next(batches), *next(batches)], [*next(batches), *next(batches)]
    assert sorted(first) == sorted(second) == list(range(6)) and first != second
    assert next(endless_batches(3, 5, None)) == [0, 1, 2, 0, 1]


class Chat:
    def encode(self, messages):
        return (1, 2)


def assets(max_positions):
    return SimpleNamespace(
        chat=Chat(),
        tokenizer=lambda text, add_special_tokens: {"input_ids": [5] * len(text.split())},
        stop_ids=(9, 8),
        architecture=SimpleNamespace(max_positions=max_positions),
    )


def test_a_response_is_closed_by_the_stop_token():
    (sequence,) = encode_records([Record(({"role": "user", "content": "?"},), "a b")], assets(10), "file")
    assert sequence == TokenSequence((1, 2), (5, 5, 9))


def test_a_record_that_is_too_long_names_file_and_row():
    records = [Record((), "a"), Record((), "a b c d")]
    with pytest.raises(DataError, match=r"file: row 2: 2 prompt and 5 response tokens"):
        encode_records(records, assets(6), "file")
