"""The run directory: where everything a run leaves behind lies, and how it is cut back when a run goes on.

Layout (docs/operations.md): config.yaml, metrics.jsonl, rollouts/, snapshots/, timeline.json, tensorboard/, logs/,
evaluation/, policy/ (the trained policy as a Hugging Face folder), report.html, and
.synced/ while a sync is verified. Only rank 0 writes shared files; every rank may read.
"""

from __future__ import annotations

from pathlib import Path

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import UsageError


class RunDirectory:
    """Names the parts of one run directory. Making one touches nothing; `create` makes the folders."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts"
        self.snapshots = path / "snapshots"
        self.timeline = path / "timeline.json"
        self.tensorboard = path / "tensorboard"
        self.evaluation = path / "evaluation"
        self.logs = path / "logs"
        self.policy = path / "policy"
        self.synced = path / ".synced"
        self.stopped_marker = path / "STOPPED"
        self.heartbeat = path / "heartbeat.json"

    @classmethod
    def of(cls, config: Config) -> RunDirectory:
        return cls(Path(config.run.dir or f"runs/{config.run.name}"))

    def create(self) -> None:
        """Makes the folders. Raises UsageError when the place cannot be written."""
        try:
            for folder in (self.path, self.rollouts, self.snapshots, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"run.dir: {self.path} cannot be made: {error.strerror or error}") from None

    def holds_a_run(self) -> bool:
        return self.metrics.exists() and self.metrics.stat().st_size > 0
