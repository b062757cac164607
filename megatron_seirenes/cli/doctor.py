"""`seirenes doctor`: what this machine has and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from megatron_seirenes.errors import MissingComponentError

if TYPE_CHECKING:
    from megatron_seirenes.device.doctor import Diagnosis

EXAMPLE = "seirenes doctor --json"

STYLES = {"ok": "green", "other version": "yellow", "missing": "yellow", "not needed": "dim"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Tell what is installed, what is missing, what that rules out and how to get it."""
    from megatron_seirenes.device.doctor import diagnose

    diagnosis = diagnose()
    if as_json:
        print(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        _print(diagnosis)
    if not diagnosis.can_train:
        raise typer.Exit(MissingComponentError.exit_code)


def _print(diagnosis: Diagnosis) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("part", "state", "here", "tested with"):
        table.add_column(title, overflow="fold")
    for finding in diagnosis.findings:
        style = "red" if finding.blocks else STYLES.get(finding.status, "yellow")
        state = f"[{style}]{finding.status}[/{style}]"
        table.add_row(finding.name, state, escape(finding.seen), escape(finding.expected))
    console.print(table)
    gib = 2**30
    console.print(f"\n{diagnosis.platform}, {diagnosis.cores} cores, {diagnosis.memory_bytes / gib:.0f} GiB memory")
    for device in diagnosis.cuda.devices:
        major, minor = device.capability
        console.print(f"{device.name}, {device.memory_bytes / gib:.0f} GiB, compute capability {major}.{minor}")
    if not diagnosis.cuda.devices:
        console.print("no CUDA device: everything runs on the CPU")
    for finding in diagnosis.findings:
        if finding.rules_out and finding.status != "not needed":
            mark = "[red]needed[/red]" if finding.blocks else "optional"
            console.print(f"\n[bold]{finding.name}[/bold] ({mark}): {escape(finding.seen)}")
            console.print(f"  rules out: {escape(finding.rules_out)}\n  to mend:   {escape(finding.remedy)}")
    verdict = "[green]can[/green]" if diagnosis.can_train else "[red]cannot[/red]"
    console.print(f"\nTraining {verdict} run here, on {diagnosis.device}.")
