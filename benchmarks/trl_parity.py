"""Our losses beside TRL's own code on the same tensors: value and gradient (docs/objectives.md has the figures).

    python -m venv trl && trl/bin/pip install trl torch       # an environment of its own: TRL is no dependency
    PYTHONPATH=. trl/bin/python benchmarks/trl_parity.py

TRL's `GRPOTrainer._compute_loss` and `RLOOTrainer._compute_loss` are called unchanged on a trainer without a model: the
log-probabilities and entropies that its model would give are put in its place. Responses of different lengths, eight to
a group, random tensors in float64. Prints a table and exits 1 when a value or gradient differs by more than 1e-6.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl import GRPOTrainer, RLOOTrainer

from megatron_seirenes.objectives.aggregation import Aggregation, rollout_weights
from megatron_seirenes.objectives.correction import Correction
from megatron_seirenes.objectives.surrogate import clipped_surrogate, reinforce
from megatron_seirenes.objectives.token_loss import TokenBatch, TokenLoss
from megatron_seirenes.records import Birth, Group, Request, Rollout, Sampling

GROUPS, SAMPLES, LONGEST = 3, 8, 12
LOW, HIGH = 0.2, 0.28
LIMIT = 1e-6


@dataclass(frozen=True)
class Case:
    """One objective by both names; `gradient_alone` where only the gradients mean the same."""

    title: str
    ours: TokenLoss
    aggregation: Aggregation
    trl: dict[str, Any] = field(default_factory=dict)
    correction: Correction | None = None
    trainer: type = GRPOTrainer
    gradient_alone: bool = False


def cases() -> Iterator[Case]:
    for loss_type, aggregation in (("grpo", "sequence_mean"), ("dapo", "token_mean"), ("dr_grpo", "constant")):
        yield Case(f"{loss_type}, clipped", clipped_surrogate(LOW, HIGH), aggregation, {"loss_type": loss_type})
    yield Case("GSPO", clipped_surrogate(LOW, HIGH, ratio="sequence"), "sequence_mean", {"level": "sequence"})
    yield Case("KL penalty, k3", clipped_surrogate(LOW, HIGH, 0.1), "sequence_mean", {"beta": 0.1})
    unbiased = clipped_surrogate(LOW, HIGH, 0.1, kl_unbiased=True)
    yield Case("KL penalty, k3, unbiased", unbiased, "sequence_mean", {"beta": 0.1, "unbiased": True})
    bonus = clipped_surrogate(LOW, HIGH, entropy_bonus=0.05)
    yield Case("entropy bonus", bonus, "token_mean", {"loss_type": "dapo", "entropy": 0.05})
    for kind in ("truncated", "masked"):
        for level in ("token", "sequence"):
            correction = Correction(kind, level, high=1.5)
            loss = clipped_surrogate(LOW, HIGH, correction=correction)
            yield Case(f"engine correction, {kind}, {level}", loss, "sequence_mean", {}, correction)
    yield Case("RLOO, on policy", reinforce(), "constant", {}, trainer=RLOOTrainer, gradient_alone=True)


@dataclass
class Data:
    """Padded [responses, longest] tensors as TRL wants them; `mask` says which entries are tokens."""

    mask: torch.Tensor
    new: torch.Tensor
    old: torch.Tensor
    behaviour: torch.Tensor
    reference: torch.Tensor
    entropy: torch.Tensor
    advantages: torch.Tensor


def draw(seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    shape = (GROUPS * SAMPLES, LONGEST)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, LONGEST + 1, (shape[0],), generator=generator)
    new = uniform(-3, -0.05)
    old = new + uniform(-0.5, 0.5)
    return Data(
        mask=(torch.arange(LONGEST)[None] < lengths[:, None]).to(torch.float64),
        new=new,
        old=old,
        behaviour=old + uniform(-0.3, 0.3),
        reference=new + uniform(-0.5, 0.5),
        entropy=uniform(0, 2),
        advantages=torch.randn(shape[0], generator=generator, dtype=torch.float64),
    )


def trl_result(case: Case, data: Data) -> tuple[float, torch.Tensor, torch.Tensor]:
    """TRL's loss, and its gradient in log-probabilities and entropy."""
    new, entropy = data.new.clone().requires_grad_(), data.entropy.clone().requires_grad_()
    trainer = bare_trainer(case, new, entropy)
    size = torch.ones_like(data.mask[:, :1], dtype=torch.long)
    inputs = {
        "prompt_ids": size,
        "prompt_mask": size,
        "completion_ids": torch.zeros_like(data.mask, dtype=torch.long),
        "completion_mask": data.mask,
        "advantages": data.advantages,
        "old_per_token_logps": data.old,
        "old_logps": (data.new * data.mask).sum(1),
        "ref_per_token_logps": data.reference,
        "num_items_in_batch": data.mask.sum(),
        "importance_sampling_ratio": None if case.correction is None else trl_ratio(case.correction, data),
    }
    loss = case.trainer._compute_loss(trainer, trainer.model, inputs)
    loss.backward()
    gradients = (value.grad if value.grad is not None else torch.zeros_like(value) for value in (new, entropy))
    return loss.item(), *gradients


def trl_ratio(correction: Correction, data: Data) -> torch.Tensor:
    """The ratio as TRL computes it beside generation (the part of its trainer that cannot be called alone)."""
    difference = (data.old - data.behaviour) * data.mask
    if correction.level == "sequence":
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = difference.exp()
    if correction.kind == "truncated":
        return ratio.clamp(max=correction.high)
    return ratio.masked_fill(ratio > correction.high, 0.0)


def bare_trainer(case: Case, new: torch.Tensor, entropy: torch.Tensor) -> Any:
    """A trainer of TRL's class with the settings that its loss reads, and no model behind it."""
    trainer = object.__new__(case.trainer)
    chosen = case.trl
    accelerator = SimpleNamespace(
        gather=lambda value: value, reduce=lambda value, reduction: value, num_processes=1, sync_gradients=False
    )
    arguments = SimpleNamespace(
        use_bias_correction_kl=chosen.get("unbiased", False), delta=None, steps_per_generation=1
    )
    settings: dict[str, Any] = {
        "loss_type": chosen.get("loss_type", "grpo"),
        "importance_sampling_level": chosen.get("level", "token"),
        "beta": chosen.get("beta", 0.0),
        "epsilon_low": LOW,
        "epsilon_high": HIGH,
        "entropy_coef": chosen.get("entropy", 0.0),
        "_entropy_bonus_enabled": "entropy" in chosen,
        "use_adaptive_entropy": False,
        "use_vllm": case.correction is not None,
        "vllm_importance_sampling_correction": case.correction is not None,
        "max_completion_length": LONGEST,
        "current_gradient_accumulation_steps": 1,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "aux_loss_enabled": False,
        "accelerator": accelerator,
        "args": arguments,
        "model": SimpleNamespace(training=True),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_get_per_token_logps_and_entropies": lambda *unused, **also_unused: (new, entropy, None),
    }
    vars(trainer).update(settings)
    return trainer


def our_result(case: Case, data: Data) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Our loss over the same tokens, packed, and its gradients laid out like TRL's."""
    new, entropy = data.new.clone().requires_grad_(), data.entropy.clone().requires_grad_()
    chosen = data.mask.bool()
    lengths = data.mask.sum(1).long()
    weights = torch.tensor(weights_of(case.aggregation, lengths.tolist()), dtype=torch.float64)
    old = data.new if case.gradient_alone else data.old
    batch = TokenBatch(
        logprobs=new[chosen],
        old_logprobs=old[chosen],
        advantages=data.advantages.repeat_interleave(lengths),
        weights=weights.repeat_interleave(lengths),
        entropy=entropy[chosen],
        reference_logprobs=data.reference[chosen],
        behaviour_logprobs=data.behaviour[chosen],
        segments=torch.arange(len(lengths)).repeat_interleave(lengths),
    )
    loss = case.ours(batch).loss
    loss.backward()
    scale = LONGEST if case.gradient_alone else 1  # RLOO sums over tokens; the constant divided by the longest
    assert new.grad is not None
    grad_entropy = torch.zeros_like(entropy) if entropy.grad is None else entropy.grad
    return loss.item(), new.grad * scale, grad_entropy


def weights_of(aggregation: Aggregation, lengths: list[int]) -> list[float]:
    groups = [group_of(index, lengths[index * SAMPLES : (index + 1) * SAMPLES]) for index in range(GROUPS)]
    return [weight for group in rollout_weights(groups, "group", aggregation, LONGEST) for weight in group]


def group_of(index: int, lengths: list[int]) -> Group:
    request = Request("r", "q", "R1", (0,), "reasoner", "shared", (1,), Sampling(LONGEST), 0)
    rollouts = tuple(Rollout(request, (0,) * length, (0.0,) * length, "stop", 0, "") for length in lengths)
    zeros = (0.0,) * len(lengths)
    return Group(f"g{index}", f"q{index}", "clean", "R1", rollouts, zeros, zeros, True, Birth(1, 0, {}))


def worst(compare: Callable[[int], tuple[float, float]], seeds: range) -> tuple[float, float]:
    found = [compare(seed) for seed in seeds]
    return max(value for value, _ in found), max(gradient for _, gradient in found)


def main() -> int:
    print(f"TRL {trl.__version__}, torch {torch.__version__}; largest difference over 20 draws\n")
    print("| objective | value | gradient |\n|---|---|---|")
    failed = False
    for case in cases():

        def compare(seed: int, case: Case = case) -> tuple[float, float]:
            theirs, ours = trl_result(case, draw(seed)), our_result(case, draw(seed))
            value = 0.0 if case.gradient_alone else abs(theirs[0] - ours[0])
            pairs = zip(theirs[1:], ours[1:], strict=True)
            return value, max((one - other).abs().max().item() for one, other in pairs)

        value, gradient = worst(compare, range(20))
        failed |= value > LIMIT or gradient > LIMIT
        shown = "gradient alone" if case.gradient_alone else f"{value:.1e}"
        print(f"| {case.title} | {shown} | {gradient:.1e} |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
