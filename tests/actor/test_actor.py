"""What the actor remembers and promises: determinism, references, refusals, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from actor_samples import training_sequences, weighted_likelihood

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.forward import MicroBatchSpan
from megatron_seirenes.actor.optimizer import learning_rate
from megatron_seirenes.actor.sequences import TokenSequence, TrainingSequence
from megatron_seirenes.config.schema import OptimizerSection
from megatron_seirenes.errors import DataError
from megatron_seirenes.objectives.surrogate import clipped_surrogate
from megatron_seirenes.objectives.token_loss import LossSum, TokenBatch

MakeActor = Callable[..., Actor]
FAST = {"lr": 1e-2, "warmup_steps": 3}


def weights_of(actor: Actor) -> dict[str, torch.Tensor]:
    return {key: value.detach().clone() for key, value in actor.modules[0].named_parameters()}


def assert_same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert torch.equal(value, right[key]), key


@pytest.mark.parametrize("name", ["qwen2", "qwen3_moe"])
def test_same_updates_from_the_same_state_have_the_same_bits(name: str, make_actor: MakeActor) -> None:
    runs = []
    for _ in range(2):
        actor = make_actor(name, optimizer=FAST, actor={"micro_batch_tokens": 14})
        reports = [actor.update(training_sequences(), weighted_likelihood) for _ in range(2)]
        runs.append((reports, weights_of(actor), actor.logprobs(training_sequences())))
    assert runs[0][0] == runs[1][0]
    assert_same_bits(runs[0][1], runs[1][1])
    assert runs[0][2] == runs[1][2]


def test_updates_lower_the_loss_at_the_scheduled_rate(make_actor: MakeActor) -> None:
    actor = make_actor("qwen3_moe", optimizer={"lr": 3e-3, "warmup_steps": 3})
    likely = [
        TrainingSequence(one.prompt_ids, one.response_ids, one.old_logprobs, 0.0, 1 / 28)
        for one in training_sequences()
    ]
    reports = [actor.update(likely, weighted_likelihood) for _ in range(5)]
    assert [report.learning_rate for report in reports] == pytest.approx([1e-3, 2e-3, 3e-3, 3e-3, 3e-3])
    losses = [report.loss for report in reports]
    assert losses == sorted(losses, reverse=True)
    assert actor.updates == 5
    assert actor.update(likely, weighted_likelihood, learning_rate=0.0).learning_rate == 0.0
    after = actor.update(likely, weighted_likelihood, learning_rate=0.0)
    assert after.loss == actor.update(likely, weighted_likelihood, learning_rate=0.0).loss


def test_every_micro_batch_is_reported_while_it_ran(make_actor: MakeActor) -> None:
    actor = make_actor("qwen2", optimizer=FAST, actor={"micro_batch_tokens": 14})
    spans: list[MicroBatchSpan] = []
    actor.report_micro_batches(map(float, count()).__next__, spans.append)
    sequences = training_sequences()
    actor.logprobs(sequences)
    scored = len(spans)
    actor.update(sequences, weighted_likelihood)
    assert [span.training for span in spans] == [False] * scored + [True] * (len(spans) - scored)
    assert scored > 1
    assert sum(span.sequences for span in spans[:scored]) == len(sequences)
    assert all(span.end_seconds == span.start_seconds + 1 for span in spans)


def test_learning_rate_rises_linearly_then_stays() -> None:
    section = OptimizerSection(lr=0.1, warmup_steps=4)
    assert [learning_rate(section, n) for n in range(6)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert learning_rate(OptimizerSection(lr=0.1), 0) == 0.1


def test_loss_sees_every_token_with_its_own_numbers(make_actor: MakeActor) -> None:
    sequences = [
        TrainingSequence((1, 2), (3, 4, 5), (-0.1, -0.2, -0.3), 2.0, 0.5, (-1.0, -2.0, -3.0)),
        TrainingSequence((6,), (7, 8), (-0.4, -0.5), -1.0, 0.25, (-4.0, -5.0)),
        TrainingSequence((9,), (), (), 7.0, 7.0),
    ]
    actor = make_actor("qwen2")
    seen: list[TokenBatch] = []

    def loss(batch: TokenBatch) -> LossSum:
        seen.append(batch)
        return weighted_likelihood(batch)

    before = actor.logprobs(sequences)
    report = actor.update(sequences, loss)
    (batch,) = seen
    assert batch.old_logprobs.tolist() == pytest.approx([-0.1, -0.2, -0.3, -0.4, -0.5])
    assert batch.advantages.tolist() == [2.0, 2.0, 2.0, -1.0, -1.0]
    assert batch.weights.tolist() == [0.5, 0.5, 0.5, 0.25, 0.25]
    assert batch.reference_logprobs is not None
    assert batch.reference_logprobs.tolist() == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert not batch.entropy.requires_grad
    assert batch.logprobs.tolist() == [*before[0].logprobs, *before[1].logprobs]
    assert batch.entropy.tolist() == [*before[0].entropy, *before[1].entropy]
    assert before[2].logprobs == ()
    assert report.tokens == 5


def test_scoring_is_the_same_however_sequences_are_packed(make_actor: MakeActor) -> None:
    sequences = training_sequences()
    alone = make_actor("qwen3_moe", actor={"micro_batch_tokens": 1}).logprobs(sequences)
    together = make_actor("qwen3_moe", actor={"micro_batch_tokens": 1_000}).logprobs(sequences)
    for one, other in zip(alone, together, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert one.entropy == pytest.approx(other.entropy, abs=1e-5)


def test_reference_stays_while_the_policy_moves(make_actor: MakeActor) -> None:
    actor = make_actor("qwen3_tied", optimizer=FAST)
    with pytest.raises(RuntimeError, match="remember_reference"):
        actor.reference_logprobs(training_sequences())
    before = actor.logprobs(training_sequences())
    actor.remember_reference()
    actor.update(training_sequences(), weighted_likelihood)
    moved, weights = actor.logprobs(training_sequences()), weights_of(actor)
    assert actor.reference_logprobs(training_sequences()) == before
    assert_same_bits(weights, weights_of(actor))
    assert actor.logprobs(training_sequences()) == moved != before


def test_a_gradient_that_is_not_finite_changes_nothing(make_actor: MakeActor) -> None:
    actor = make_actor("qwen2", optimizer=FAST)
    actor.update(training_sequences(), weighted_likelihood)
    before = weights_of(actor)

    def broken(batch: TokenBatch) -> LossSum:
        return LossSum((batch.logprobs * float("nan")).sum(), {"tokens": batch.weights.new_tensor(1.0)})

    report = actor.update(training_sequences(), broken)
    assert report.skipped
    assert actor.updates == 1
    assert_same_bits(before, weights_of(actor))
    assert not actor.update(training_sequences(), weighted_likelihood).skipped


def test_a_nan_that_leaves_no_gradient_is_seen_in_the_loss(make_actor: MakeActor) -> None:
    """The gradient of a clip bound is zero, even at NaN: looking at the gradient alone would take the step."""
    actor = make_actor("qwen2", optimizer=FAST, actor={"micro_batch_tokens": 14})
    named = [replace(one, name=f"r{index}") for index, one in enumerate(training_sequences())]
    spoilt = replace(named[2], old_logprobs=(math.nan,) * len(named[2].response_ids), advantage=1.0)
    before = weights_of(actor)
    report = actor.update([*named[:2], spoilt, *named[3:]], clipped_surrogate(0.2, 0.28))
    assert report.skipped and math.isnan(report.loss) and actor.updates == 0
    assert "r2" in report.suspects and len(report.suspects) < len(named)
    assert_same_bits(before, weights_of(actor))


def test_a_sum_that_is_not_finite_is_seen_though_the_loss_is(make_actor: MakeActor) -> None:
    """A token that the behaviour policy cannot have drawn: the ratio is clipped, the loss finite, ppo_kl infinite."""
    actor = make_actor("qwen2", optimizer=FAST)
    sequence = TrainingSequence((1, 2), (3,), (-math.inf,), 1.0, 1.0, name="impossible")
    report = actor.update([sequence], clipped_surrogate(0.2, 0.28))
    assert report.skipped and math.isfinite(report.loss) and report.suspects == ("impossible",)


def test_words_that_are_never_sampled_take_no_part(make_actor: MakeActor) -> None:
    actor = make_actor("qwen2", sampled_vocabulary=40)
    sequence = TokenSequence((60, 50), (39, 3))
    (result,) = actor.logprobs([sequence])
    (whole,) = make_actor("qwen2").logprobs([sequence])
    assert all(one > other for one, other in zip(result.logprobs, whole.logprobs, strict=True))
    with pytest.raises(ValueError, match="sequence 0, response: token ids from 3 to 40; 0 to 39 are allowed"):
        actor.logprobs([TokenSequence((1,), (40, 3))])
    with pytest.raises(ValueError, match="no prompt"):
        actor.logprobs([TokenSequence((), (3,))])
    with pytest.raises(ValueError, match="sequence 0: 1 old_logprobs for 2 response tokens"):
        actor.update([TrainingSequence((1,), (2, 3), (0.0,), 1.0, 1.0)], weighted_likelihood)


BFLOAT16: dict[str, object] = {"model": {"dtype": "bfloat16"}}
DISTRIBUTED: dict[str, object] = {"parallel": {"distributed_optimizer": True}}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama_tied", {}),
        ("qwen3_moe", {}),
        ("qwen3_moe", BFLOAT16),
        ("qwen3_moe", DISTRIBUTED),
        ("qwen3_tied", BFLOAT16 | DISTRIBUTED),
    ],
)
def test_going_on_from_a_checkpoint_has_the_same_bits(
    name: str, layout: dict[str, object], make_actor: MakeActor, tmp_path: Path
) -> None:
    sections = {"optimizer": FAST, "actor": {"micro_batch_tokens": 14}, **layout}
    first = make_actor(name, **sections)
    for _ in range(2):
        first.update(training_sequences(), weighted_likelihood)
    first.save(tmp_path / "checkpoint")
    expected = [first.update(training_sequences(), weighted_likelihood) for _ in range(2)]

    second = make_actor(name, **sections)
    second.load(tmp_path / "checkpoint")
    assert second.updates == 2
    assert [second.update(training_sequences(), weighted_likelihood) for _ in range(2)] == expected
    assert_same_bits(weights_of(first), weights_of(second))


def test_a_checkpoint_of_an_untrained_actor_and_another_rate(make_actor: MakeActor, tmp_path: Path) -> None:
    first = make_actor("qwen3_moe", optimizer=FAST)
    first.save(tmp_path)
    expected = first.update(training_sequences(), weighted_likelihood, learning_rate=1e-3)
    second = make_actor("qwen3_moe", optimizer={"lr": 1e-3})
    second.update(training_sequences(), weighted_likelihood)
    second.load(tmp_path)
    assert second.updates == 0
    assert second.update(training_sequences(), weighted_likelihood) == expected
    assert_same_bits(weights_of(first), weights_of(second))


def test_a_folder_without_a_checkpoint_is_refused(make_actor: MakeActor, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing_here"):
        make_actor("qwen2").load(tmp_path / "nothing_here")


def test_master_weights_follow_weights_that_were_written(make_actor: MakeActor, model_folder: Callable) -> None:
    actor = make_actor("qwen3_tied", model={"dtype": "bfloat16"}, optimizer={"lr": 1e-2})
    start = weights_of(actor)
    actor.update(training_sequences(), weighted_likelihood)
    actor.load_hf(model_folder("qwen3_tied"))
    actor.update(training_sequences(), weighted_likelihood, learning_rate=0.0)
    assert_same_bits(start, weights_of(actor))


def test_a_loss_sees_which_response_a_token_belongs_to_and_what_the_engine_said(make_actor: MakeActor) -> None:
    actor = make_actor("qwen2", optimizer=FAST, actor={"micro_batch_tokens": 14})
    named = [
        replace(one, behaviour_logprobs=tuple(100.0 * i + t for t in range(len(one.response_ids))))
        for i, one in enumerate(training_sequences())
    ]
    seen: list[tuple[int, float]] = []

    def loss(batch: TokenBatch) -> LossSum:
        assert batch.segments is not None
        assert batch.behaviour_logprobs is not None
        for segment in range(int(batch.segments.max()) + 1):
            mine = batch.behaviour_logprobs[batch.segments == segment]
            assert mine.tolist() == [mine[0].item() + t for t in range(len(mine))]
            seen.append((len(mine), mine[0].item()))
        return weighted_likelihood(batch)

    actor.update(named, loss)
    assert sorted(seen) == sorted((len(one.response_ids), 100.0 * i) for i, one in enumerate(named))


def test_an_entropy_bonus_moves_weights_towards_more_entropy(make_actor: MakeActor) -> None:
    sequences = [replace(one, weight=0.01) for one in training_sequences()]
    entropies = []
    for bonus in (0.0, 1.0):
        actor = make_actor("qwen2", optimizer=FAST, objective={"entropy_bonus": bonus})
        for _ in range(2):
            actor.update(sequences, clipped_surrogate(0.2, 0.28, entropy_bonus=bonus))
        entropies.append(sum(sum(result.entropy) for result in actor.logprobs(sequences)))
    assert entropies[1] > entropies[0] + 1e-3
