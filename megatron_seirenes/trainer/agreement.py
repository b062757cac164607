"""That all ranks decide the same: digests of their decisions are compared; a difference ends the run, both sides named.

Control is replicated, so a rank that went astray (a corrupt memory, a file read differently, a bug) would otherwise
train on with the others and spoil the policy unseen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.trainer.ranks import Ranks, several

SHOWN = 120
"""Characters of a small decision that the message shows."""


class RanksDisagree(SeirenesError):
    """Two ranks decided differently; nothing was saved since they did."""


def check_agreement(ranks: Ranks, when: str, decided: Callable[[], Mapping[str, Any]]) -> None:
    """Collective. `decided` gives JSON-able values by name; it is not asked when there is one rank.

    Raises RanksDisagree, on every rank, naming both sides.
    """
    if not several(ranks):
        return
    decisions = decided()
    mine = {name: _digest(value) for name, value in decisions.items()}
    everyone = ranks.gather(mine)
    astray = next((rank for rank, other in enumerate(everyone) if other != everyone[0]), None)
    if astray is None:
        return
    differing = [name for name, digest in everyone[0].items() if everyone[astray].get(name) != digest]
    shown = ranks.gather({name: _text(decisions[name])[:SHOWN] for name in differing})
    sides = "; ".join(
        f"{name}: rank 0 has {shown[0][name]}, rank {astray} has {shown[astray][name]}" for name in differing
    )
    raise RanksDisagree(
        f"{when}: ranks 0 and {astray} no longer decide the same ({sides}); stopped before they train on different "
        "things: go on from the last snapshot, and look at the machine of the rank that is alone with its view"
    )


def _digest(value: Any) -> str:
    return hashlib.blake2b(_text(value).encode(), digest_size=16).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
