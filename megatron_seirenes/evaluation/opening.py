"""Opening a policy folder for questions: its roles, and an engine that starts when the first question is asked."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from megatron_seirenes.config.schema import Config
from megatron_seirenes.evaluation.answers import Provenance
from megatron_seirenes.evaluation.asking import Policy
from megatron_seirenes.evaluation.engine_when_needed import engine_when_needed
from megatron_seirenes.evaluation.identity import policy_digest
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.trainer.assembly import build_roles, open_policy
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_engine, open_world


def open_for_questions(
    config: Config, directory: RunDirectory, roles: Iterable[str], stack: ExitStack
) -> tuple[Policy, Provenance]:
    """The policy of the configuration and what its answers are made by. `stack` closes whatever is opened.

    Raises ConfigError, DataError.
    """
    assets = open_policy(config, directory)

    def start() -> Engine:
        return open_engine(config, assets, open_world(config, stack), stack)

    built = build_roles(config, roles, assets.chat)
    return Policy(config, built, engine_when_needed(start), assets.chat), {"policy": policy_digest(assets.folder)}
