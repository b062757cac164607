"""The actor's weights into the engine, by the plan of the run; and, where asked, the proof that they came as they are.

The proof (`observe.verify_sync`) compares, on every rank and bit for bit, digests of what the engine is given with
those of a folder on the disk: `first` when a run begins, with the folder that its policy came from; `every` at each
sync, with a folder that is exported for it and removed again. A difference ends the run on all ranks, with the tensors
named. What the engine makes of its weights is watched by the metrics `mismatch/*`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.export import export_hf_folder
from megatron_seirenes.bridge.hf_folder_writer import torch_dtype
from megatron_seirenes.bridge.plan import Plan
from megatron_seirenes.bridge.sync_digest import Digests, differing, folder_digests, watched
from megatron_seirenes.bridge.transport import Transport
from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.trainer.ranks import Ranks

SHOWN = 5


class WeightsDiffer(SeirenesError):
    """An engine was given other weights than a folder holds that should hold the same."""


class WeightSync:
    """Moves the weights of `modules`, this rank's GPTModel chunks. Collective: all ranks make the same calls.

    `folder` is the policy's, which an export takes its configuration from; `fresh` says that its weights are still
    those of the modules. `dtype` is that of the parameters. Exports are made at `scratch`, which all ranks see.
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        architecture: Architecture,
        plan: Plan,
        ranks: Ranks,
        *,
        folder: Path,
        fresh: bool,
        dtype: str,
        scratch: Path,
        verify: Literal["never", "first", "every"],
    ):
        self.modules = modules
        self.architecture = architecture
        self.plan = plan
        self.ranks = ranks
        self.folder = folder
        self.dtype = dtype
        self.scratch = scratch
        self.verify = verify
        self._fresh = fresh
        self._needed = {} if verify == "never" else plan.needed(ranks.rank)

    def __call__(self, engine: Engine, version: int) -> None:
        """Fills `engine` with the weights of policy `version`. Raises WeightsDiffer when a proof fails."""
        tensors = Transport(self.modules, self.architecture, self.plan).tensors()
        with self._reference() as folder:
            if folder is None:
                engine.load_weights(tensors, version)
                return
            given: Digests = {}
            engine.load_weights(watched(tensors, self._needed, given), version)
            self._compare(given, folder, version)

    @contextmanager
    def _reference(self) -> Iterator[Path | None]:
        """The folder to compare this sync with; None when it is not to be verified."""
        fresh, self._fresh = self._fresh, False
        if self.verify != "every":
            yield self.folder if fresh and self.verify == "first" else None
            return
        try:
            export_hf_folder(self.modules, self.architecture, self.scratch, self.folder, self.dtype, overwrite=True)
            self.ranks.gather(None)
            yield self.scratch
        finally:
            if self.ranks.rank == 0:
                shutil.rmtree(self.scratch, ignore_errors=True)

    def _compare(self, given: Digests, folder: Path, version: int) -> None:
        """Raises the same error on every rank. No rank leaves before all have read the folder."""
        wrong = differing(given, folder_digests(folder, self._needed, torch_dtype(self.dtype)))
        for rank, names in enumerate(self.ranks.gather(wrong)):
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                raise WeightsDiffer(
                    f"weights of policy version {version}: what the engine on rank {rank} was given is not what "
                    f"{folder} holds: {', '.join(names[:SHOWN])}{more} (observe.verify_sync); nothing was generated "
                    "with them: go on from the last snapshot"
                )
