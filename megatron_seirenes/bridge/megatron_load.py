"""Loading the weights of a Megatron-Core distributed checkpoint into live modules, by Megatron-Core itself.

The layout that wrote it does not matter: this is how weights move from one Megatron layout into another. Optimizer
states are the actor's business (`actor/checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.transformer.module import MegatronModule

from megatron_seirenes.errors import DataError


def load_megatron_weights(modules: Sequence[MegatronModule], folder: str | Path) -> None:
    """Fills `modules`, this rank's chunks, from `folder`. Collective; call within the actor scope.

    An optimizer with master weights of its own must take them over afterwards. Raises DataError when the folder holds
    no weights of this model.
    """
    wanted = {str(number): module.sharded_state_dict() for number, module in enumerate(modules)}
    try:
        state = dist_checkpointing.load(wanted, str(folder))
    except (CheckpointingException, FileNotFoundError, KeyError, ValueError) as error:
        raise DataError(f"{folder}: holds no weights of this model: {error}") from error
    for number, module in enumerate(modules):
        module.load_state_dict(state[str(number)])
