"""What the scheduler needs of whatever generates: the engine protocol.

An engine is driven, it does not drive: `step` advances every running sequence by one token and returns what finished.
Order is part of the promise: requests are served first come, first served, and the same submissions between the same
steps give the same completions in the same order. Nothing here knows vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from megatron_seirenes.records import FinishReason, Request

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished request: the ids drawn (the stop token included) and their log-probabilities, one each."""

    request_id: str
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


class Engine(Protocol):
    """One policy that can be asked. `policy_version` is the version of the weights it holds."""

    policy_version: int

    def submit(self, request: Request) -> None:
        """Queues a request behind those already submitted."""

    def step(self) -> Sequence[Completion]:
        """Advances by one engine step and returns the requests that finished in it, in a deterministic order."""

    def has_unfinished(self) -> bool:
        """Whether any submitted request is still waiting or running."""

    def drawn_tokens(self) -> int:
        """Response tokens that the requests which have not finished hold so far."""

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drops requests; they never complete."""

    def load_weights(self, tensors: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        """Replaces every weight in place by (Hugging Face name, full tensor) pairs and forgets cached prefixes."""

    def sleep(self) -> None:
        """Gives back what memory it can until `wake` (a no-op where it cannot)."""

    def wake(self) -> None:
        """Takes the memory back."""

    def close(self) -> None:
        """Ends the engine; it cannot be used afterwards."""
