"""`seirenes warmup`: supervised cold start of a policy."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import ConfigFile, Overrides

EXAMPLE = "seirenes warmup yaml_configs/smollm2_cpu.yaml model.path=runs/smollm2_cpu/model"


def warmup(file: ConfigFile, overrides: Overrides = None) -> None:
    """Warm a policy up on prompt/response records (supervised) and write a Hugging Face folder."""
    from megatron_seirenes.config.loading import load_config

    loaded = load_config(file, overrides or ())
    from megatron_seirenes.trainer.warmup import warmup as run

    run(loaded)
