"""Results as a table for people, as CSV for programs and as one SVG picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape

from megatron_seirenes.benchmark.cases import PHASES, Result

COLOURS = {"rollout": "#4477aa", "scoring": "#66ccee", "training": "#228833", "sync": "#ee6677"}


def table(results: Sequence[Result]) -> str:
    """Markdown: response tokens a second a device of each phase, its share of the step, peak memory, MFU."""
    head = ["layout", *(f"{phase} tok/s" for phase in PHASES[:3]), "step tok/s", *(f"{phase} %" for phase in PHASES)]
    head += ["sync s", "sync MB", "peak GB", "MFU %"]
    lines = [_row(head), _row(["---"] * len(head))]
    for one in sorted(results, key=lambda one: one.seconds["step"] if one.seconds else float("inf")):
        name = one.layout or "(none)"
        lines.append(_row([name, f"failed: {one.reason}"]) if one.seconds is None else _row(_cells(one, name)))
    return "\n".join(lines)


def _cells(one: Result, name: str) -> list[str]:
    assert one.seconds is not None
    alone = sum(one.seconds[phase] for phase in PHASES)
    rates = [f"{one.rate(phase):.0f}" for phase in (*PHASES[:3], "step")]
    shares = [f"{100 * one.seconds[phase] / alone:.0f}" for phase in PHASES]
    mfu = "" if one.mfu is None else f"{100 * one.mfu:.1f}"
    return [
        name,
        *rates,
        *shares,
        f"{one.seconds['sync']:.3f}",
        f"{one.sync_bytes / 1e6:.1f}",
        f"{one.peak_bytes / 1e9:.2f}",
        mfu,
    ]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def as_csv(results: Sequence[Result]) -> str:
    """One line a layout: seconds, bytes and tokens as measured, nothing derived but MFU."""
    text = io.StringIO()
    writer = csv.writer(text)
    seconds = [*PHASES, "step"]
    figures = ["tokens", "sync_bytes", "peak_bytes", "mfu", "reason"]
    writer.writerow(["layout", "devices", "device", *(f"{phase}_seconds" for phase in seconds), *figures])
    for one in results:
        measured = [one.seconds[phase] if one.seconds else "" for phase in seconds]
        mfu = "" if one.mfu is None else one.mfu
        writer.writerow(
            [
                one.layout,
                one.devices,
                one.device,
                *measured,
                one.tokens,
                one.sync_bytes,
                one.peak_bytes,
                mfu,
                one.reason,
            ]
        )
    return text.getvalue()


def plot(results: Sequence[Result]) -> str:
    """An SVG: one bar a layout, the seconds of its phases stacked."""
    measured = [one for one in results if one.seconds]
    measured.sort(key=lambda one: one.seconds["step"] if one.seconds else 0.0)
    longest = max((sum(one.seconds[phase] for phase in PHASES) for one in measured if one.seconds), default=1.0)
    width, left, bar = 900, 330, 26
    height = 50 + bar * len(measured) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, phase in enumerate(PHASES):
        parts.append(f'<rect x="{left + 120 * number}" y="12" width="12" height="12" fill="{COLOURS[phase]}"/>')
        parts.append(f'<text x="{left + 18 + 120 * number}" y="23">{phase}</text>')
    for number, one in enumerate(measured):
        assert one.seconds is not None
        y, x = 42 + bar * number, float(left)
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(one.layout or "(none)")}</text>')
        for phase in PHASES:
            size = one.seconds[phase] / longest * (width - left - 90)
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{size:.1f}" height="{bar - 6}" fill="{COLOURS[phase]}"/>')
            x += size
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{sum(one.seconds[p] for p in PHASES):.2f} s</text>')
    parts.append(f'<text x="{left}" y="{height - 10}">seconds of a step, phase by phase</text>')
    return "\n".join([*parts, "</svg>\n"])
