r"""Writes the demonstrations of the small world's warm-up.

Phase 1 shows clean, faultless work only, short chains first; mixing in roles or noise from the start does not learn.
Phase 2 mixes both roles and mistakes, and leaves a policy that solves about half of the questions, believes wrong
claims, and writes hints: the state in which self-play has something to do.

Prompts come out of the same prompt files that self-play uses; chains are of the training templates only. Every record
is drawn from its own seed, so that a file's first n records do not depend on how many follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from megatron_seirenes.problems.chain_statements import Hint, HintKind, boxed, make_hint, work
from megatron_seirenes.problems.chains import LONGEST, Chain, draw_chain
from megatron_seirenes.roles.prompt import Prompt, load_prompt
from megatron_seirenes.seeds import stable_seed

REASONER_PROMPT = "chains_reasoner"
ADVERSARY_PROMPT = "chains_adversary"


@dataclass(frozen=True, slots=True)
class WarmupMixture:
    """What phase 2 consists of; all values are probabilities. What is neither clean nor hinted is the Adversary's."""

    clean: float = 0.35
    hinted: float = 0.45
    boxed_directly: float = 0.15
    mistake: float = 0.1
    true_hint: float = 0.7
    follow_hint: float = 0.9
    claim_boxed_directly: float = 0.5
    shown_kinds: tuple[tuple[HintKind, float], ...] = (("steps", 0.5), ("claim", 0.25), ("restatement", 0.25))
    written_kinds: tuple[tuple[HintKind, float], ...] = (("steps", 0.6), ("restatement", 0.3), ("claim", 0.1))


@dataclass(frozen=True, slots=True)
class WarmupFiles:
    """Where the records of the two phases were written."""

    phase1: Path
    phase2: Path


def write_warmup_records(
    out_dir: str | Path,
    seed: int,
    phase1_records: int = 48_640,
    short_records: int = 16_000,
    phase2_records: int = 31_680,
    mixture: WarmupMixture | None = None,
) -> WarmupFiles:
    r"""Writes `phase1.jsonl` and `phase2.jsonl` into `out_dir`, to be learned in file order.

    The first `short_records` of phase 1 have 1 to 4 steps, the others 1 to 6. A record is
    `{"messages": [{"role": "user", "content": …}], "response": "a 1 b 9 c 3 \\boxed{ 3 }"}`.
    The defaults are 760 and 495 batches of 64.
    """
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    files = WarmupFiles(out_dir / "phase1.jsonl", out_dir / "phase2.jsonl")
    demonstrator = Demonstrator(mixture or WarmupMixture())

    def phase1(rng: Random, index: int) -> dict[str, Any]:
        return demonstrator.faultless(rng, longest=4 if index < short_records else LONGEST)

    def phase2(rng: Random, index: int) -> dict[str, Any]:
        return demonstrator.mixed(rng)

    _write(files.phase1, _records("phase1", seed, phase1_records, phase1))
    _write(files.phase2, _records("phase2", seed, phase2_records, phase2))
    return files


class Demonstrator:
    """Draws one demonstration at a time, as a record."""

    def __init__(self, mixture: WarmupMixture):
        self._mixture = mixture
        self._reasoner = load_prompt(REASONER_PROMPT)
        self._adversary = load_prompt(ADVERSARY_PROMPT)

    def faultless(self, rng: Random, longest: int) -> dict[str, Any]:
        """A clean question of 1 to `longest` steps, worked without a mistake."""
        chain = draw_chain(rng, "train", shortest=1, longest=longest)
        lines, value = work(rng, chain)
        return _record(self._reasoner, chain, None, [*lines, boxed(value)])

    def mixed(self, rng: Random) -> dict[str, Any]:
        """A demonstration of phase 2: clean, hinted, or the Adversary's."""
        chain = draw_chain(rng, "train")
        drawn = rng.random()
        if drawn < self._mixture.clean:
            return self._clean(rng, chain)
        if drawn < self._mixture.clean + self._mixture.hinted:
            return self._hinted(rng, chain)
        hint = self._hint(rng, chain, self._mixture.written_kinds)
        return _record(self._adversary, chain, None, [hint.text])

    def _clean(self, rng: Random, chain: Chain) -> dict[str, Any]:
        if rng.random() < self._mixture.boxed_directly:
            return _record(self._reasoner, chain, None, [boxed(chain.answer)])
        return _record(self._reasoner, chain, None, self._own_work(rng, chain))

    def _hinted(self, rng: Random, chain: Chain) -> dict[str, Any]:
        hint = self._hint(rng, chain, self._mixture.shown_kinds)
        follows = rng.random() < self._mixture.follow_hint
        words = self._following(rng, chain, hint) if follows else self._own_work(rng, chain)
        return _record(self._reasoner, chain, hint.text, words)

    def _following(self, rng: Random, chain: Chain, hint: Hint) -> list[str]:
        """Work that believes the hint: a claim is boxed whatever the work says, told steps are copied and continued."""
        if hint.kind == "claim":
            if rng.random() < self._mixture.claim_boxed_directly:
                return [boxed(hint.believed_value)]
            lines, _ = work(rng, chain, self._mixture.mistake)
            return [*lines, boxed(hint.believed_value)]
        copied = [hint.text] if hint.kind == "steps" else []
        lines, value = work(rng, hint.believed, self._mixture.mistake, hint.steps_done, hint.believed_value)
        return [*copied, *lines, boxed(value)]

    def _own_work(self, rng: Random, chain: Chain) -> list[str]:
        lines, value = work(rng, chain, self._mixture.mistake)
        return [*lines, boxed(value)]

    def _hint(self, rng: Random, chain: Chain, kinds: tuple[tuple[HintKind, float], ...]) -> Hint:
        kind = rng.choices([kind for kind, _ in kinds], weights=[weight for _, weight in kinds])[0]
        return make_hint(rng, chain, rng.random() < self._mixture.true_hint, kind)


def _record(prompt: Prompt, chain: Chain, hint: str | None, words: list[str]) -> dict[str, Any]:
    context = {} if hint is None else {"hint": hint}
    return {"messages": prompt.messages(chain.text, context), "response": " ".join(words)}


def _records(
    phase: str, seed: int, count: int, draw: Callable[[Random, int], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for index in range(count):
        yield draw(Random(stable_seed("warmup", phase, seed, index)), index)


def _write(path: Path, records: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
