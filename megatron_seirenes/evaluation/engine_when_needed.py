"""An engine that is opened by the first request: whoever finds every answer in its file loads no model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from megatron_seirenes.rollouts.engine import Engine


def engine_when_needed(open_engine: Callable[[], Engine]) -> Engine:
    """The engine that `open_engine` opens, once, when something is asked of it."""
    return cast(Engine, _EngineWhenNeeded(open_engine))


class _EngineWhenNeeded:
    """Every attribute is the engine's."""

    def __init__(self, open_engine: Callable[[], Engine]):
        self._open_engine = open_engine
        self._engine: Engine | None = None

    def __getattr__(self, name: str) -> Any:
        if self._engine is None:
            self._engine = self._open_engine()
        return getattr(self._engine, name)
