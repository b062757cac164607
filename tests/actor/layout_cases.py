"""The layouts of the table in docs/layouts.md: which model, on how many ranks, laid out how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LLAMA, TIED, MOE = "deep_llama", "deep_qwen3_tied", "deep_qwen3_moe"
NAMES = {LLAMA: "dense, untied", TIED: "dense, tied", MOE: "mixture of experts"}
LOSSES = {"router_balance": "balance loss", "router_z": "z-loss"}
_SIZES = {
    "tensor": "TP {}",
    "pipeline": "PP {}",
    "virtual_pipeline": "VPP {}",
    "context": "CP {}",
    "expert": "EP {}",
    "expert_tensor": "ETP {}",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A layout of `model` over `ranks` processes; `fault` names what is broken on purpose.

    `objective` holds coefficients of router losses, `budget` the tokens of a micro-batch.
    """

    model: str
    ranks: int
    parallel: dict[str, Any]
    fault: str = ""
    objective: dict[str, float] = field(default_factory=dict)
    budget: int = 14

    @property
    def reference(self) -> str:
        """The name of the single-process numbers: those of the model, under the losses of the routers."""
        return "-".join([self.model, *(f"{name}={value}" for name, value in sorted(self.objective.items()))])

    @property
    def data(self) -> int:
        """The data-parallel size that the other sizes leave over."""
        dense = [self.parallel.get(name, 1) for name in ("tensor", "pipeline", "context")]
        return self.ranks // (dense[0] * dense[1] * dense[2])

    @property
    def layout(self) -> str:
        """As in `TP 2 · SP · PP 2 · DP 2 · distributed optimizer`."""
        parts = [text.format(self.parallel[name]) for name, text in _SIZES.items() if name in self.parallel]
        if self.parallel.get("sequence_parallel"):
            parts.insert(1, "SP")
        if self.data > 1:
            parts.append(f"DP {self.data}")
        if self.parallel.get("distributed_optimizer"):
            parts.append("distributed optimizer")
        if self.parallel.get("expert_dispatcher") == "allgather":
            parts.append("all-gather")
        parts += [LOSSES[name] for name in self.objective]
        return " · ".join(parts)


def _cases(model: str, ranks: int, *layouts: dict[str, Any]) -> list[Case]:
    return [Case(model, ranks, layout) for layout in layouts]


_TP2 = {"tensor": 2, "sequence_parallel": True}
_TP4 = {"tensor": 4, "sequence_parallel": True}
_ZERO = {"distributed_optimizer": True}
_VPP = {"pipeline": 2, "virtual_pipeline": 2}
_GATHER = {"expert_dispatcher": "allgather"}
_Z = {"router_z": 0.2}
_BOTH = {"router_balance": 0.3, **_Z}
_ONE_MICRO_BATCH = 1_000


def _routed(ranks: int, objective: dict[str, float], *layouts: dict[str, Any], budget: int = 14) -> list[Case]:
    return [Case(MOE, ranks, layout, objective=objective, budget=budget) for layout in layouts]


CASES: tuple[Case, ...] = (
    *_cases(LLAMA, 2, {"tensor": 2}, _TP2, {"pipeline": 2}, {"context": 2}, {}, _ZERO),
    *_cases(TIED, 2, _TP2, {"pipeline": 2}),
    *(Case(model, 2, _VPP) for model in (LLAMA, TIED, MOE)),
    *_cases(MOE, 2, _TP2, {"pipeline": 2}, {"context": 2}, {"expert": 2}, {"expert": 2, **_ZERO}, _ZERO),
    *_cases(MOE, 2, {"expert": 2, **_GATHER}, {**_TP2, **_GATHER}, {"pipeline": 2, **_GATHER}, {**_VPP, **_GATHER}),
    *_routed(2, _Z, _TP2, {"pipeline": 2}, _VPP, {"context": 2}, {"expert": 2}, {"expert": 2, **_GATHER}),
    *_routed(2, _BOTH, _TP2, {"pipeline": 2}, {"context": 2}, budget=_ONE_MICRO_BATCH),
    *_cases(LLAMA, 4, _TP4, {"context": 4}, {**_TP2, "pipeline": 2}, {**_TP2, **_ZERO}, {"context": 2, **_ZERO}),
    *_cases(TIED, 4, {"pipeline": 4}, {**_TP2, "context": 2}, {"pipeline": 2, "context": 2}, {"pipeline": 2, **_ZERO}),
    *_cases(
        MOE,
        4,
        {"expert": 4},
        {"expert": 2, **_ZERO},
        {"expert": 2, "pipeline": 2},
        {"expert": 2, "context": 2},
        {**_TP2, "expert": 2, "expert_tensor": 1},
        {**_TP2, "context": 2, "expert": 4, "expert_tensor": 1},
        {**_TP2, "expert_tensor": 2},
        {**_TP2, "expert": 2, "expert_tensor": 2},
        {"context": 2, **_ZERO},
        {"expert": 2, "pipeline": 2, **_GATHER},
        {"expert": 2, "context": 2, **_GATHER},
        {**_TP2, "expert": 2, "expert_tensor": 1, **_GATHER},
        {**_TP2, "expert": 2, "expert_tensor": 2, **_GATHER},
    ),
    *_routed(4, _Z, {**_TP2, "pipeline": 2}, {**_TP2, "expert": 2, "expert_tensor": 2, **_GATHER}),
    *_routed(
        4,
        _BOTH,
        {**_TP2, "pipeline": 2},
        {**_TP2, "context": 2},
        {**_TP2, "context": 2, "expert": 2, "expert_tensor": 2, **_GATHER},
        budget=_ONE_MICRO_BATCH,
    ),
    *_cases(
        LLAMA, 8, {**_TP2, "pipeline": 2, "context": 2}, {**_TP2, "pipeline": 2, **_ZERO}, {**_TP4, "pipeline": 2}
    ),
    *_cases(TIED, 8, {"pipeline": 2, "context": 2}, {**_TP2, "context": 2, **_ZERO}),
    *_cases(
        MOE,
        8,
        {"expert": 8},
        {"expert": 2, "pipeline": 2},
        {"expert": 2, "pipeline": 2, "context": 2},
        {**_TP2, "expert": 2, "context": 2, "expert_tensor": 1},
        {**_TP2, "expert": 4, "expert_tensor": 1, **_ZERO},
        {**_TP2, "pipeline": 2, "expert": 2, "expert_tensor": 1},
        {**_TP2, "pipeline": 2, "expert_tensor": 2},
        {**_TP2, "pipeline": 2, "expert": 2, "expert_tensor": 2},
        {**_TP2, "expert": 4, "expert_tensor": 2, **_ZERO},
        {**_TP2, "pipeline": 2, "context": 2, "expert": 4, "expert_tensor": 1},
        {**_TP2, "pipeline": 2, "expert": 2, "expert_tensor": 2, **_GATHER},
        {"expert": 4, "pipeline": 2, **_GATHER, **_ZERO},
    ),
)

WRONG_WEIGHT, UNMARKED_NORMS = "a weight of rank 1 is off by 0.1", "norms are not marked for SP"
FAULTS: tuple[Case, ...] = (
    *(Case(LLAMA, 2, layout, WRONG_WEIGHT) for layout in (_TP2, {"pipeline": 2}, {"context": 2}, {})),
    Case(MOE, 2, {"expert": 2}, WRONG_WEIGHT),
    Case(LLAMA, 2, _TP2, UNMARKED_NORMS),
)
