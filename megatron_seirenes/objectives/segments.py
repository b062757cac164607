"""Sums and means over the tokens of each response, handed back to every token of it.

Values are float tensors [tokens]; `segments` is int64 [tokens], the number of the response that a token belongs to
(`TokenBatch.segments`). Both functions carry gradient: the derivative of a sum reaches every token of its response.
"""

from __future__ import annotations

import torch


def segment_sums(values: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """For every token the sum over its response, [tokens]."""
    if len(values) == 0:
        return values
    totals = values.new_zeros(int(segments.max()) + 1)
    return totals.index_add(0, segments, values).index_select(0, segments)


def segment_means(values: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """For every token the mean over its response, [tokens]."""
    return segment_sums(values, segments) / segment_sums(torch.ones_like(values), segments)
