"""The command line: puts the commands together and turns how they end into exit codes.

0 done, 1 failed, 2 the call or the configuration is wrong, 3 a component is missing, 75 stopped by a signal with
everything saved, 130 interrupted. A `SeirenesError` is shown as its message alone; any other exception is a bug and
keeps its traceback. Commands import what they run when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated

import typer

from megatron_seirenes import __version__
from megatron_seirenes.cli import attack, audit, config, doctor, evaluate, judge, quickstart, report, train, warmup
from megatron_seirenes.cli.launch import rank, under_torchrun
from megatron_seirenes.device.quiet import quieten_libraries
from megatron_seirenes.errors import ConfigError, FirstRankFailed, SeirenesError, StoppedBySignal

INTERRUPTED = 130
COMMANDS: tuple[ModuleType, ...] = (
    doctor,
    quickstart,
    config,
    warmup,
    train,
    evaluate,
    attack,
    audit,
    report,
    judge,
)

app = typer.Typer(
    name="seirenes",
    epilog="Example: seirenes quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"seirenes {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Adversarial self-play with evolving distractions on Megatron-Core and vLLM."""


for _module in COMMANDS:
    _name = _module.__name__.rpartition(".")[2]
    app.command(_name, epilog=f"Example: {_module.EXAMPLE}")(getattr(_module, _name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and ends the process with its exit code."""
    quieten_libraries()
    try:
        app(arguments, prog_name="seirenes")
    except SeirenesError as error:
        _tell(error)
        sys.exit(_exit_code(error))
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        raise


def _tell(error: SeirenesError) -> None:
    """What every process of a launch finds, or rank 0 has said, is said once; anything else names its process."""
    number = rank()
    if isinstance(error, ConfigError | FirstRankFailed) and number:
        return
    print(f"rank {number}: {error}" if number else error, file=sys.stderr, flush=True)


def _exit_code(error: SeirenesError) -> int:
    """torchrun takes any non-zero exit for a failure to be restarted; a saved stop is none (the run holds STOPPED)."""
    return 0 if isinstance(error, StoppedBySignal) and under_torchrun() else error.exit_code
