"""`seirenes train`: trains a policy, or goes on with a run."""

from __future__ import annotations

from typing import Annotated

import typer

from megatron_seirenes.cli.arguments import ConfigFile, Overrides

EXAMPLE = "torchrun --nproc-per-node 8 -m megatron_seirenes train yaml_configs/qwen3_4b.yaml run.name=first"


def train(
    file: ConfigFile,
    overrides: Overrides = None,
    resume: Annotated[
        str,
        typer.Option(
            metavar="auto|never|PATH",
            help="auto: go on from the newest complete snapshot of the run directory, or start; never: start; "
            "PATH: go on from that snapshot.",
        ),
    ] = "auto",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="model|game|problems",
            help="Go on although this differs from the snapshot; may be given several times.",
        ),
    ] = None,
) -> None:
    """Train a policy; goes on with the run by itself when its directory holds a snapshot."""
    from megatron_seirenes.config.loading import load_config

    loaded = load_config(file, overrides or ())
    from megatron_seirenes.trainer.train import train as run

    run(loaded, resume, accept or ())
