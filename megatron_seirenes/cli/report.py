"""`seirenes report`: one self-contained page about one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from megatron_seirenes.cli.launch import say

EXAMPLE = "seirenes report runs/seirenes runs/grpo --out compare.html"


def report(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR", help="One run, or several to compare.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write; report.html of the first run by default.")
    ] = None,
    bundles: Annotated[
        int, typer.Option(metavar="N", min=0, help="Bundles a run whose texts are packed into the page.")
    ] = 24,
) -> None:
    """Write one self-contained HTML page; several runs are compared."""
    from megatron_seirenes.observe.report import write_report

    say(str(write_report(run_dirs, out, bundles)))
