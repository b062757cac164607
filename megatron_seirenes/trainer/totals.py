"""The part of a metrics row that is known when a step ends: counters, times and rates. Pure."""

from __future__ import annotations

from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.streams.streams import Streams
from megatron_seirenes.trainer.update import Row

PARTS_OF_A_STEP = ("rollout", "train", "sync", "evaluation")
TIMES = ("time/judge_wait", *(f"time/{name}" for name in PARTS_OF_A_STEP))
"""The times that a row counts up from 0, in seconds."""


def step_totals(row: Row, streams: Streams, sampler: ProblemSampler, saving: float, devices: int) -> Row:
    """What `row`, which holds the step's times and tokens, still lacks.

    `saving` is the seconds spent on snapshots since the last row; rates are tokens a second a device.
    """
    totals: Row = {"policy_version": streams.policy_version}
    for name, counters in streams.counters().items():
        totals |= {f"streams/{name}/{key}": value for key, value in counters.items()}
    totals["mastery/retired"] = len(sampler.retired)
    totals["mastery/live_fraction"] = sampler.live_fraction
    totals["mastery/saved_fraction"] = sampler.saved_fraction
    totals["tokens/trained"] = row.get("tokens/trained") or 0
    seconds = {name: float(row[f"time/{name}"] or 0.0) for name in PARTS_OF_A_STEP}
    totals["time/snapshot"] = saving
    totals["time/step"] = sum(seconds.values()) + saving
    totals["throughput/generated"] = _rate(row["tokens/generated"], seconds["rollout"] * devices)
    totals["throughput/trained"] = _rate(totals["tokens/trained"], seconds["train"] * devices)
    return totals


def _rate(tokens: float | int | None, seconds: float) -> float | None:
    return float(tokens) / seconds if tokens and seconds > 0 else None
