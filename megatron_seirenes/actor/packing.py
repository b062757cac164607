"""Which sequences share a micro-batch: a pure decision on lengths.

Every sequence lands in exactly one bin and is never cut; a bin's tokens stay within the budget unless it holds a
single sequence that is longer than the budget by itself; the same lengths always give the same bins.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def pack(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Bins of indices into `lengths`, as few as first-fit-decreasing finds, then evened out.

    Fewest bins first: the bin count is what first-fit in order of decreasing length needs. Then the same number of
    bins is filled again, longest sequence into the emptiest bin, and that is kept where it respects the budget: even
    bins take even time. Indices within a bin, and bins by their first index, are in ascending order.

    Raises ValueError for a budget or a length below 1.
    """
    if token_budget < 1:
        raise ValueError(f"a token budget of {token_budget}: at least 1 was expected")
    if any(length < 1 for length in lengths):
        raise ValueError(f"a sequence of {min(lengths)} tokens: at least 1 was expected")
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    bins = _first_fit(lengths, order, token_budget)
    even = _emptiest_first(lengths, order, len(bins))
    if all(_fits(lengths, members, token_budget) for members in even):
        bins = even
    return sorted(sorted(members) for members in bins)


def _fits(lengths: Sequence[int], members: Sequence[int], token_budget: int) -> bool:
    return len(members) == 1 or sum(lengths[index] for index in members) <= token_budget


def _first_fit(lengths: Sequence[int], order: Sequence[int], token_budget: int) -> list[list[int]]:
    bins: list[list[int]] = []
    free: list[int] = []
    for index in order:
        place = next((i for i, room in enumerate(free) if room >= lengths[index]), len(bins))
        if place == len(bins):
            bins.append([])
            free.append(token_budget)
        bins[place].append(index)
        free[place] -= lengths[index]
    return bins


def _emptiest_first(lengths: Sequence[int], order: Sequence[int], count: int) -> list[list[int]]:
    bins: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, i) for i in range(count)]
    for index in order:
        tokens, i = heapq.heappop(heap)
        bins[i].append(index)
        heapq.heappush(heap, (tokens + lengths[index], i))
    return bins
