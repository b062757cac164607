"""The actor equals Hugging Face in float32: logits, log-probabilities, gradients, weights after an optimizer step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tiny_hf
import torch
from actor_samples import PROMPTS, RESPONSES, WEIGHTS, training_sequences, weighted_likelihood

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.batch import make_micro_batch
from megatron_seirenes.device.backend import Backend

BUDGETS = (1, 14, 64)  # one sequence a micro-batch, a few, all in one
LEARNING_RATE, DECAY, CLIP, BETAS, EPSILON = 1e-2, 0.1, 1.0, (0.8, 0.95), 1e-3


def optimizer_section() -> dict[str, object]:
    return {
        "lr": LEARNING_RATE,
        "weight_decay": DECAY,
        "gradient_clip": CLIP,
        "beta1": BETAS[0],
        "beta2": BETAS[1],
        "epsilon": EPSILON,
    }


@pytest.mark.parametrize("name", tiny_hf.CONFIGS)
def test_one_update_equals_hugging_face(name: str, make_actor: Callable[..., Actor]) -> None:
    model = tiny_hf.make_model(name)
    losses = []
    for prompt, response, weight in zip(PROMPTS, RESPONSES, WEIGHTS, strict=True):
        logprobs, _ = tiny_hf.response_scores(model, prompt, response)
        losses.append(-weight * logprobs.sum())
    loss = torch.stack(losses).sum()
    loss.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP))
    assert norm > CLIP, "the step must be a clipped one"
    gradients = {key: value.grad for key, value in model.named_parameters()}
    expected_gradients = tiny_hf.in_megatron_layout(gradients, model.config)
    largest = max(float(gradient.abs().max()) for gradient in expected_gradients.values())
    decayed = [value for value in model.parameters() if value.dim() > 1]
    plain = [value for value in model.parameters() if value.dim() == 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON).step()
    expected_weights = tiny_hf.in_megatron_layout(
        {key: value.detach() for key, value in model.named_parameters()}, model.config
    )

    for budget in BUDGETS:
        actor = make_actor(name, actor={"micro_batch_tokens": budget}, optimizer=optimizer_section())
        report = actor.update(training_sequences(), weighted_likelihood)
        assert not report.skipped
        assert report.tokens == sum(map(len, RESPONSES)) == report.sums["tokens"]
        assert report.loss == pytest.approx(float(loss.detach()), rel=1e-5)
        assert report.grad_norm == pytest.approx(norm, rel=1e-5)
        seen = dict(actor.modules[0].named_parameters())
        assert seen.keys() == expected_gradients.keys()
        for key, parameter in seen.items():
            # Both are clipped: Megatron-Core clips in place, in its gradient buffer.
            difference = parameter.main_grad - expected_gradients[key]
            assert float(difference.abs().max()) <= 1e-5 * largest, (key, budget)
            assert float((parameter - expected_weights[key]).abs().max()) <= 5e-6, (key, budget)


@pytest.mark.parametrize("name", tiny_hf.CONFIGS)
def test_logprobs_and_entropy_equal_hugging_face(name: str, make_actor: Callable[..., Actor]) -> None:
    model = tiny_hf.make_model(name)
    for budget, temperature, sampled in ((1, 1.0, None), (14, 0.7, 61), (64, 1.0, None)):
        settings = {"micro_batch_tokens": budget, "logprob_chunk_tokens": 5}
        actor = make_actor(name, sampled, actor=settings, rollout={"temperature": temperature})
        with torch.no_grad():
            for result, prompt, response in zip(actor.logprobs(training_sequences()), PROMPTS, RESPONSES, strict=True):
                logprobs, entropy = tiny_hf.response_scores(model, prompt, response, temperature)
                assert result.logprobs == pytest.approx(logprobs.tolist(), abs=1e-5)
                assert result.entropy == pytest.approx(entropy.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", tiny_hf.CONFIGS)
def test_logits_equal_hugging_face_packed_and_alone(
    name: str, make_actor: Callable[..., Actor], backend: Backend
) -> None:
    model, actor, sequences = tiny_hf.make_model(name), make_actor(name), training_sequences()
    alone = [[index] for index in range(len(sequences))]
    for members in (*alone, list(range(len(sequences)))):
        batch = make_micro_batch(sequences, members, 1, backend.device)
        with torch.no_grad(), backend.actor_scope():
            logits = actor.modules[0].eval()(batch.tokens, batch.positions, None, packed_seq_params=batch.packed)
        inputs = [[*sequences[i].prompt_ids, *sequences[i].response_ids[:-1]] for i in members]
        with torch.no_grad():
            expected = torch.cat([model(torch.tensor([ids])).logits[0] for ids in inputs])
        assert float((logits.reshape(expected.shape) - expected).abs().max()) <= 1e-4, members
