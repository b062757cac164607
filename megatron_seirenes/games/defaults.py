"""What every game begins with: the stage that answers the question alone, and the stream that learns from it.

The numbers are those of the Seirênes paper's Appendix B, but for `capacity` (four flushes) and `max_policy_lag`, which
are ours. Games derive their other stages and streams from these, so that a number is written once.
"""

from __future__ import annotations

from megatron_seirenes.games.game import Stage, Stream

ANSWERS = Stage(name="R1", role="reasoner", samples=8, max_tokens=16_384)

CLEAN = Stream(
    name="clean",
    trains_on="R1",
    needs=("R1",),
    objective="clipped",
    flush=128,
    capacity=512,
    max_lag=3,
    max_policy_lag=12,
)
