"""What is compared: worlds, warm-ups, seeds and methods, and the configuration of each run. Plain data.

A run is yaml_configs/quickstart.yaml under the preset of its method and the changes below. Every run has the same
budget of generated tokens, the same model, rate and questions; methods differ in nothing that is not written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

QUESTIONS = 4_000
HELD_OUT = {"task": "chain_arithmetic", "split": "held_out", "count": 384, "seed": 1}
RUMOURS = {"notes": 0.7, "note_truth": 0.9}

# A rumour is a `claim N` beside seven questions in ten, true in nine of ten cases: a shortcut that may be learned.
WORLDS: Mapping[str, Mapping[str, Any]] = {"plain": {}, "rumours": RUMOURS}


@dataclass(frozen=True, slots=True)
class Method:
    """A preset of yaml_configs/games/ (None: quickstart.yaml as it is) and the small world's numbers for it."""

    title: str
    preset: str | None
    changes: Mapping[str, Any]
    hints: bool = False


_ON_POLICY = {"streams": {"clean": {"flush": 16, "capacity": 16, "max_flushes": 1}}, "problems": {"per_step": 16}}
_DAPO = _ON_POLICY | {"objective": {"overlong_cache": 4}}

METHODS: Mapping[str, Method] = {
    "seirenes": Method("Seirênes", None, {}),
    "dapo": Method("DAPO", "dapo", _DAPO),
    "dapo_24": Method("DAPO, 24 answers", "dapo", _DAPO | {"game": {"stages": {"R1": {"samples": 24}}}}),
    "dr_grpo": Method("Dr.GRPO", "dr_grpo", {}),
    "static_self": Method("static hints of its own", "static_hints", {}, hints=True),
    "frozen_adversary": Method("Seirênes without adversary updates", "seirenes_frozen_adversary", {}),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the comparison."""

    world: str
    warmup: int
    seed: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.world}-warm{self.warmup}-{self.method}-seed{self.seed}"


def cells(
    worlds: Sequence[str], warmups: Sequence[int], seeds: Sequence[int], methods: Sequence[str]
) -> Iterator[Cell]:
    """Every run, all methods of one world and warm-up before the next, so that whatever is done can be compared."""
    for seed, warmup, world, method in product(seeds, warmups, worlds, methods):
        yield Cell(world, warmup, seed, method)


def training_questions(world: str) -> dict[str, Any]:
    """The source of training questions of a world."""
    options = {"options": dict(WORLDS[world])} if WORLDS[world] else {}
    return {"task": "chain_arithmetic", "split": "train", "count": QUESTIONS, **options}


def benchmarks(world: str) -> dict[str, Any]:
    """Held-out questions without notes: alone, under one fixed set of wrong claims, under the policy's own hints; and,
    in a world of rumours, with their notes."""
    found: dict[str, Any] = {
        "clean": {"problems": HELD_OUT, "samples": 2, "distractors": None},
        "wrong_claims": {"problems": HELD_OUT, "samples": 2, "distractors": {"kind": "task", "name": "wrong_claims"}},
        "own_hints": {"problems": HELD_OUT, "samples": 2, "distractors": {"kind": "policy"}},
    }
    if WORLDS[world]:
        found["natural"] = {"problems": {**HELD_OUT, "options": dict(WORLDS[world])}, "samples": 2}
    return found
