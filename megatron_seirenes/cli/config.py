"""`seirenes config`: the resolved configuration, or everything that is wrong with it."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import ConfigFile, Overrides
from megatron_seirenes.cli.launch import say

EXAMPLE = "seirenes config yaml_configs/qwen3_4b.yaml parallel.tensor=2 game.stages.R2.samples=4"


def config(file: ConfigFile, overrides: Overrides = None) -> None:
    """Print the resolved configuration; on faults print all of them and exit 2."""
    from megatron_seirenes.config.loading import dump_config, load_config

    say(dump_config(load_config(file, overrides or ())).rstrip())
