"""`seirenes quickstart`: the whole road on this machine, with nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "seirenes quickstart --out quickstart"


def quickstart(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs and the report go.")] = Path("quickstart"),
) -> None:
    """Make a small model, warm it up, train Seirênes, evaluate it and write the report."""
    from megatron_seirenes.quickstart.run import quickstart as run

    run(out)
