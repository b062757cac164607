"""`seirenes attack`: hints of one policy against another. Not built yet."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import ConfigFile, Overrides
from megatron_seirenes.errors import MissingComponentError

EXAMPLE = "seirenes attack yaml_configs/qwen3_4b.yaml model.path=runs/first/policy"


def attack(file: ConfigFile, overrides: Overrides = None) -> None:
    """Attack one policy with the hints of another (not built yet)."""
    raise MissingComponentError(
        "attack: not built yet. The policy's own hints can be measured with `seirenes evaluate` "
        "(evaluation.benchmarks.NAME.distractors.kind: policy)"
    )
