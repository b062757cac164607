"""A role: what it is asked, in which format, and which of its responses are admitted.

The scheduler asks roles for prompts and nothing else; policies, stages and credit are the game's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from megatron_seirenes.config.schema import RoleSettings
from megatron_seirenes.errors import DataError
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.gates import Gate, find_gate
from megatron_seirenes.roles.prompt import Prompt, load_prompt
from megatron_seirenes.seeds import stable_seed


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a game. `gate_penalty` is the reward of a response that the gate refuses."""

    name: str
    prompt: Prompt
    chat: ChatFormat
    gate: Gate | None = None
    gate_penalty: float = -0.25

    def prompt_ids(self, problem: Problem, context: Mapping[str, str]) -> tuple[int, ...]:
        """The token ids that ask this role about a problem; `context` may hold `hint`. The answer is never shown."""
        return self.chat.encode(self.prompt.messages(problem.question, self._with_note(problem, context)))

    def prompt_text(self, problem: Problem, context: Mapping[str, str]) -> str:
        """The same prompt as text, for records and people."""
        return self.chat.render(self.prompt.messages(problem.question, self._with_note(problem, context)))

    def _with_note(self, problem: Problem, context: Mapping[str, str]) -> Mapping[str, str]:
        """The context with the note that always stands beside this question, if it has one (`meta["note"]`).

        A role whose prompt has no turn for hints is not shown it. Beside a hint, which of the two comes first depends
        on both texts alone.
        """
        note = problem.meta.get("note")
        if note is None or self.prompt.user_with_hint is None:
            return context
        if "hint" not in context:
            return {**context, "hint": str(note)}
        pair = [str(note), context["hint"]]
        return {**context, "hint": " ".join(pair if stable_seed("note", *pair) % 2 else reversed(pair))}

    def admit(self, text: str, problem: Problem) -> str | None:
        """None when a response may be used, else the gate's reason."""
        return None if self.gate is None else self.gate(text, problem)


class Roles(Mapping[str, Role]):
    """The roles of a run by name."""

    def __init__(self, roles: Iterable[Role]):
        self._roles = {role.name: role for role in roles}

    @classmethod
    def build(cls, settings: Mapping[str, RoleSettings], role_names: Iterable[str], chat: ChatFormat) -> Self:
        """The roles a game names, in its order, with the run's overrides; others in `settings` are ignored.

        Without an override a role has the packaged prompt of its own name and no gate. Raises DataError for an unknown
        prompt or gate, and for a prompt that was written for another role.
        """
        return cls(_build_role(name, settings.get(name, RoleSettings()), chat) for name in dict.fromkeys(role_names))

    def __getitem__(self, name: str) -> Role:
        return self._roles[name]

    def __iter__(self):
        return iter(self._roles)

    def __len__(self) -> int:
        return len(self._roles)


def _build_role(name: str, settings: RoleSettings, chat: ChatFormat) -> Role:
    prompt = load_prompt(settings.prompt or name)
    if prompt.role != name:
        raise DataError(f"roles.{name}.prompt: {prompt.name} was written for the role {prompt.role!r}")
    gate = None if settings.gate is None else find_gate(settings.gate)
    return Role(name, prompt, chat, gate, settings.gate_penalty)
