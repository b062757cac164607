"""`seirenes attack`: one policy's hints against another model."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import ConfigFile, Overrides

EXAMPLE = "seirenes attack yaml_configs/attack.yaml model.path=runs/first/policy"


def attack(file: ConfigFile, overrides: Overrides = None) -> None:
    """Attack a local model or an OpenAI-compatible endpoint with the hints of a policy: avg@3 clean, hinted, Δ."""
    from megatron_seirenes.config.loading import load_config

    loaded = load_config(file, overrides or ())
    from megatron_seirenes.evaluation.attack import attack as run

    run(loaded)
