"""`seirenes quickstart`: the whole road on this machine, with nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "seirenes quickstart --out runs/quickstart"


def quickstart(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where runs and report go.")] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(min=0, help="Seeds the model, its warm-up and both runs.")] = 0,
    control: Annotated[bool, typer.Option("--control", help="Also run Seirênes with learning switched off.")] = False,
) -> None:
    """Make a small model, warm it up, train Seirênes, evaluate it and write the report."""
    from megatron_seirenes.quickstart.run import quickstart as run

    run(out, seed, control)
