"""Whether generation moves, seen from outside: engine steps that return, yet draw no token.

Pure: a comparison of two counts, so that ranks which share a replica and see the same counts decide the same.
"""

from __future__ import annotations


class StallDetector:
    """Told the engine steps done and the tokens drawn so far, says when `after` steps brought nothing new.

    Looks once every `after` steps, so a stall is noticed within twice as many; None never looks.
    """

    def __init__(self, after: int | None):
        self._after = after
        self._seen: tuple[int, int] | None = None

    def due(self, engine_steps: int) -> bool:
        """Whether it is time to look: counting what was drawn costs something."""
        return self._after is not None and engine_steps % self._after == 0

    def stalled(self, finished: int, drawn: int) -> bool:
        """Whether nothing was finished and nothing drawn since the last look."""
        before, self._seen = self._seen, (finished, drawn)
        return before == self._seen
