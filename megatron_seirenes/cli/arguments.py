"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file; yaml_configs/ holds some.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Dotted keys with YAML values, like parallel.tensor=2."),
]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run.")]
