"""The rows of metrics.jsonl in TensorBoard and, when asked for and installed, in Weights & Biases.

The same numbers under the same names; nulls are left out, since neither has a null. Both packages are imported only
when a sink is made, so that nothing else pays for them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

from megatron_seirenes.errors import MissingComponentError
from megatron_seirenes.observe.metrics import Row


class RowSink(Protocol):
    """Something beside metrics.jsonl that shows rows."""

    def write(self, row: Row) -> None:
        """Shows the row of a finished step."""

    def close(self) -> None:
        """Writes what is left."""


class TensorBoardSink:
    """Event files in `folder`. `first_step` is this session's first step: an older session's later ones are hidden."""

    def __init__(self, folder: Path, first_step: int | None = None):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingComponentError(
                "observe.tensorboard is true, but the package tensorboard is not installed: "
                "pip install tensorboard, or set observe.tensorboard=false"
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, row: Row) -> None:
        for key, value in shown(row).items():
            self._writer.add_scalar(key, value, global_step=row["step"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A Weights & Biases run named like ours; a resumed run goes on under the same `run_id`."""

    def __init__(self, run_id: str, config: dict[str, Any], folder: Path):
        try:
            import wandb
        except ImportError as error:
            raise MissingComponentError(
                "observe.wandb is true, but the package wandb is not installed: "
                "pip install wandb, or set observe.wandb=false"
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(id=run_id, name=run_id, config=config, dir=str(folder), resume="allow")

    def write(self, row: Row) -> None:
        self._run.log(shown(row), step=row["step"])

    def close(self) -> None:
        self._run.finish()


def shown(row: Row) -> dict[str, float]:
    """The values of a row that a plot can show: no nulls, nothing that is not finite, not the step itself."""
    return {key: value for key, value in row.items() if key != "step" and value is not None and math.isfinite(value)}
