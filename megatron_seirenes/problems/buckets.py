"""Difficulty-balanced subsets (paper, Appendix B): an offline pass counts right answers, buckets are sampled evenly.

Pure and stable: the chosen set depends on the counts and the seed, not on the order in which problems are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from megatron_seirenes.seeds import stable_seed


def difficulty_bucket(successes: int, rollouts: int, buckets: int) -> int:
    """The bucket of a problem solved in `successes` of `rollouts`: 0 is the hardest, `buckets` - 1 the easiest.

    Buckets are equal intervals of the pass rate; integers decide, so no rate falls on the wrong side of an edge.
    """
    if not 0 <= successes <= rollouts or rollouts == 0:
        raise ValueError(f"{successes} successes of {rollouts} rollouts")
    return min(successes * buckets // rollouts, buckets - 1)


def balanced_sample(successes: Mapping[str, int], rollouts: int, buckets: int, count: int, seed: int) -> list[str]:
    """The ids of `count` problems drawn as evenly over difficulty buckets as these are filled.

    A bucket too small for its share gives all it has, and the others share what is missing; where shares do not
    divide, harder buckets get one more. `successes` maps each id to its right answers in `rollouts`. Returns sorted
    ids. Raises ValueError when fewer than `count` problems are given.
    """
    if count > len(successes):
        raise ValueError(f"{count} problems asked of {len(successes)}")
    filled: dict[int, list[str]] = {}
    for problem_id in sorted(successes):
        filled.setdefault(difficulty_bucket(successes[problem_id], rollouts, buckets), []).append(problem_id)
    shares = _even_shares({bucket: len(ids) for bucket, ids in filled.items()}, count)
    chosen: list[str] = []
    for bucket, share in shares.items():
        chosen.extend(Random(stable_seed("bucket", seed, bucket)).sample(filled[bucket], share))
    return sorted(chosen)


def _even_shares(sizes: Mapping[int, int], count: int) -> dict[int, int]:
    """How many each bucket gives: smallest buckets first, each an even share of what is still to be given."""
    shares: dict[int, int] = {}
    for position, bucket in enumerate(sorted(sizes, key=lambda bucket: (sizes[bucket], -bucket))):
        shares[bucket] = min(sizes[bucket], (count - sum(shares.values())) // (len(sizes) - position))
    return shares
