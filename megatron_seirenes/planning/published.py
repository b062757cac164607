"""The plan against published runs: what it says, what was measured, and the error between them.

The runs are GRPO on DGX H100 in bfloat16 from the NeMo RL 0.4 performance summary: 2,048 sequences a step of at most
4,096 tokens, four updates, scored by the policy and by a reference. `Rates` were set on the rows marked `fitted`: their
error says that the formulas can meet both at once; the error of the others is the one to expect.
"""

from __future__ import annotations

from dataclasses import dataclass

from megatron_seirenes.bridge.plan import plan_sync
from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.planning.duration import Duration, Workload, duration_of
from megatron_seirenes.planning.machine import MACHINES, Rates
from megatron_seirenes.planning.memory import Layout, memory_of
from megatron_seirenes.planning.shapes import find_shape


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One measured run. `length` counts the prompt, too; `seconds` is a whole step."""

    model: str
    training: TrainingLayout
    engine: EngineLayout
    length: float
    seconds: float
    fitted: bool


RUNS = (
    PublishedRun(
        "llama3.1-8b", TrainingLayout(16, pipeline=2), EngineLayout(16), length=1_060, seconds=97.7, fitted=True
    ),
    PublishedRun(
        "qwen3-30b-a3b",
        TrainingLayout(32, tensor=2, expert=8),
        EngineLayout(32, tensor=4),
        length=3_154,
        seconds=225.0,
        fitted=True,
    ),
    PublishedRun(
        "qwen3-32b",
        TrainingLayout(32, tensor=4, pipeline=4, expert_tensor=4),
        EngineLayout(32, tensor=4),
        length=3_206,
        seconds=393.0,
        fitted=False,
    ),
)

PROMPT_TOKENS = 160
"""A question of OpenMathInstruct-2 with its template: an estimate, a small part of the length."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`error` is (planned - measured) / measured of the step's seconds."""

    run: PublishedRun
    planned: Duration

    @property
    def error(self) -> float:
        return self.planned.total / self.run.seconds - 1


def compare(run: PublishedRun, rates: Rates = Rates()) -> Comparison:  # noqa: B008 - frozen
    """Plans a published run as it was run."""
    architecture, machine = find_shape(run.model), MACHINES["h100"]
    layout = Layout(run.training, run.engine, micro_batch_tokens=4_096)
    work = Workload(
        sequences=2_048,
        prompt_tokens=PROMPT_TOKENS,
        response_tokens=run.length - PROMPT_TOKENS,
        longest=4_096,
        trained=2_048,
        updates=4,
        scoring_passes=2.0,
    )
    memory = memory_of(architecture, layout, machine.memory)
    plan = plan_sync(architecture, run.training, run.engine)
    return Comparison(run, duration_of(architecture, layout, memory.kv_cache, work, machine, rates, plan))
