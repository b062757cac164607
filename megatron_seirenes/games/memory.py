"""A memory of strong hints, so that what defeated the Reasoner is asked again without being written again.

The Seirênes paper leaves this to future work (Appendix K). A hint is kept with its question when the Reasoner lost at
least `min_delta` under it (Eq. 11); the newest `per_question` stay. A remembered hint is shown again until it is
`max_age` collection steps old, counted from when it was written, and then forgotten: a stale hint tests what the
Reasoner has long learned. Memory belongs to the control plane: notes are plain data, the same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from megatron_seirenes.games.game import Ask
from megatron_seirenes.games.options import MemoryOptions
from megatron_seirenes.records import Bundle, Problem, Rollout

StrongHints = Callable[[Bundle, float], Sequence[str]]


class HintMemory:
    """Hints by problem id, oldest first, each with the step of its writing. `strong` picks them out of a bundle."""

    def __init__(self, options: MemoryOptions, per_question: int, strong: StrongHints):
        self._options = options
        self._per_question = per_question
        self._strong = strong
        self._kept: dict[str, list[tuple[int, str]]] = {}

    def begin_step(self, step: int) -> None:
        oldest = step - self._options.max_age
        fresh = {
            problem_id: [hint for hint in hints if hint[0] >= oldest] for problem_id, hints in self._kept.items()
        }
        self._kept = {problem_id: hints for problem_id, hints in fresh.items() if hints}

    def note(self, bundle: Bundle) -> Mapping[str, Any] | None:
        hints = list(self._strong(bundle, self._options.min_delta))
        return {"problem_id": bundle.problem.id, "step": bundle.step, "hints": hints} if hints else None

    def remember(self, notes: Sequence[Mapping[str, Any]]) -> None:
        for note in notes:
            kept = self._kept.get(note["problem_id"], []) + [(note["step"], hint) for hint in note["hints"]]
            self._kept[note["problem_id"]] = kept[-self._per_question :]

    def recall(self, problem_id: str) -> tuple[str, ...]:
        """The hints to show again, oldest first."""
        return tuple(hint for _, hint in self._kept.get(problem_id, ()))

    def ask_again(self, parent: Rollout | None, problem: Problem) -> Sequence[Ask]:
        """The `expand` of the stage that answers under remembered hints."""
        return [Ask(context={"hint": hint}) for hint in self.recall(problem.id)]

    def ask_anew(self, parent: Rollout | None, problem: Problem) -> Sequence[Ask]:
        """The `expand` of the stage that writes hints: not while some are remembered."""
        return () if problem.id in self._kept else (Ask(context={}),)

    def state_dict(self) -> dict[str, Any]:
        return {problem_id: [list(hint) for hint in hints] for problem_id, hints in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kept = {problem_id: [(step, hint) for step, hint in hints] for problem_id, hints in state.items()}
