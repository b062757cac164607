"""Estimates as text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from megatron_seirenes.planning.duration import Workload
from megatron_seirenes.planning.published import RUNS, compare
from megatron_seirenes.planning.search import Estimate

MEMORY_COLUMNS = (
    ("parameters", "param"),
    ("gradients", "grad"),
    ("optimizer", "optim"),
    ("activations", "activ"),
    ("logits", "logits"),
    ("engine_weights", "engine"),
    ("kv_cache", "kv"),
)
TIME_COLUMNS = ("rollout", "scoring", "training", "sync")


def layout_name(one: Estimate) -> str:
    """`tp2 pp1 ep8 | tp4 | full`: training, engine, recomputation."""
    training, engine = one.layout.training, one.layout.engine
    return f"tp{training.tensor} pp{training.pipeline} ep{training.expert} | tp{engine.tensor} | {one.layout.recompute}"


def table(estimates: Sequence[Estimate], work: Workload, top: int) -> str:
    """The first `top` layouts that fit, and how many do not and why the nearest does not."""
    fitting = [one for one in estimates if one.duration]
    others = [one for one in estimates if not one.duration]
    head = ["training | engine | recompute", *(short for _, short in MEMORY_COLUMNS), "GB", *TIME_COLUMNS, "step s"]
    head += ["tok/s/GPU", "sync GB", "÷ bound"]
    rows = [_row(one, work) for one in fitting[:top]]
    lines = _aligned([head, *rows]) if rows else ["no layout fits"]
    lines.append(f"{len(fitting)} layouts fit, {len(others)} do not")
    if others:
        lines.append(f"nearest that does not: {layout_name(others[0])}: {others[0].reason}")
    return "\n".join(lines)


def _row(one: Estimate, work: Workload) -> list[str]:
    assert one.duration is not None
    gigabytes = [f"{getattr(one.memory, name) / 1e9:.1f}" for name, _ in MEMORY_COLUMNS]
    seconds = [f"{getattr(one.duration, name):.{2 if name == 'sync' else 0}f}" for name in TIME_COLUMNS]
    rate = work.sequences * work.response_tokens / one.duration.total / one.layout.training.world
    moved = ["-", "-"]
    if one.plan:
        bound = one.plan.bound.total
        moved = [f"{one.plan.total / 1e9:.0f}", f"{one.plan.total / bound:.3f}" if bound else "-"]
    total = f"{one.memory.total / 1e9:.1f}"
    return [layout_name(one), *gigabytes, total, *seconds, f"{one.duration.total:.0f}", f"{rate:.0f}", *moved]


def as_data(one: Estimate) -> dict[str, Any]:
    """One estimate as JSON-able data; bytes and seconds."""
    return {
        "training": asdict(one.layout.training),
        "engine": asdict(one.layout.engine),
        "recompute": one.layout.recompute,
        "micro_batch_tokens": one.layout.micro_batch_tokens,
        "memory": {**asdict(one.memory), "total": one.memory.total},
        "sequences_in_cache": one.sequences,
        "seconds": None if one.duration is None else {**asdict(one.duration), "total": one.duration.total},
        "sync_bytes": None if one.plan is None else one.plan.total,
        "sync_bound_bytes": None if one.plan is None else one.plan.bound.total,
        "reason": one.reason,
    }


def published_table() -> str:
    """The plan against `published.RUNS`."""
    rows = [["published run", "training | engine", "measured s", "planned s", "error", ""]]
    for run in RUNS:
        done = compare(run)
        training, engine = run.training, run.engine
        layout = f"tp{training.tensor} pp{training.pipeline} ep{training.expert} | tp{engine.tensor}"
        rows.append(
            [
                f"{run.model}, {training.world} GPUs",
                layout,
                f"{run.seconds:.0f}",
                f"{done.planned.total:.0f}",
                f"{100 * done.error:+.0f} %",
                "rates fitted to it" if run.fitted else "not fitted",
            ]
        )
    return "\n".join(_aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
