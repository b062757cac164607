"""The report's chapters of figures, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass

from megatron_seirenes.observe.report.figures import (
    Panel,
    draw_against,
    draw_delta,
    draw_evaluation,
    draw_evaluation_against,
    draw_evictions,
    draw_saved,
    draw_time,
)
from megatron_seirenes.observe.report.timeline_figures import draw_added, draw_idle, draw_running


@dataclass(frozen=True, slots=True)
class Chapter:
    """Figures under one heading; `anchor` is the heading's id in the page."""

    anchor: str
    title: str
    panels: tuple[Panel, ...]


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        "success",
        "Success",
        (
            Panel("Success, clean and hinted", ("success/clean", "success/hinted"), unit="fraction"),
            Panel(
                "What hints take away",
                note="Clean minus hinted success (attack/delta); above the dotted line an attack counts as strong.",
                draw=draw_delta,
            ),
            Panel(
                "Success against tokens",
                note="The same success against tokens generated since the start.",
                draw=draw_against("tokens/generated", 1e6, "million generated tokens"),
            ),
            Panel(
                "Success against time",
                note="The same success against wall-clock hours since the start.",
                draw=draw_against("time/step", 3600, "hours"),
            ),
        ),
    ),
    Chapter(
        "evaluation",
        "Evaluation",
        (
            Panel(
                "Benchmarks during training",
                note="Mean over questions of the share of correct samples; 95 % intervals where measured.",
                draw=draw_evaluation,
            ),
            Panel(
                "Benchmarks against time",
                note="The same against wall-clock hours of training since the start.",
                draw=draw_evaluation_against("time/step", 3600, "hours"),
            ),
            Panel(
                "Benchmarks against tokens",
                note="The same against tokens generated in training since the start.",
                draw=draw_evaluation_against("tokens/generated", 1e6, "million generated tokens"),
            ),
        ),
    ),
    Chapter(
        "stability",
        "Stability",
        (
            Panel("Gradient norm", ("grad_norm/{s}",), unit="norm"),
            Panel("KL of the update", ("ppo_kl/{s}",), unit="nats"),
            Panel("Clip fraction", ("clip_fraction/{s}",), unit="fraction"),
            Panel("Entropy", ("entropy/{s}",), unit="nats"),
            Panel("KL to the reference", ("reference_kl/{s}",), unit="nats"),
            Panel("Loss", ("loss/{s}",), unit="loss"),
        ),
    ),
    Chapter(
        "streams",
        "Streams",
        (
            Panel("Waiting in the queues", ("streams/{s}/pending",), unit="stream units"),
            Panel("Optimizer steps", ("streams/{s}/updates_total",), unit="updates since the start"),
            Panel(
                "Lag of what was trained",
                ("streams/{s}/lag_max", "streams/{s}/policy_lag_max"),
                note="The largest lag of a trained group, in updates of its own stream and of the whole policy.",
                unit="updates",
            ),
            Panel(
                "Evicted",
                note="Groups dropped from a queue since the start, because they were stale or because it was full.",
                draw=draw_evictions,
            ),
            Panel("Without signal", ("streams/{s}/zero_advantage",), unit="stream units"),
        ),
    ),
    Chapter(
        "attack",
        "Attack",
        (
            Panel("Different hints", ("hints/distinct_fraction", "hints/refused_fraction"), unit="fraction"),
            Panel("Entropy of the hint texts", ("hints/entropy",), unit="nats"),
        ),
    ),
    Chapter(
        "mastery",
        "Mastery",
        (
            Panel("Retired questions", ("mastery/retired",), unit="questions"),
            Panel("Questions still asked", ("mastery/live_fraction",), unit="fraction"),
            Panel(
                "Work saved by retiring, estimated",
                note="If rollout work is proportional to the questions asked, a step saves the retired share of them.",
                draw=draw_saved,
            ),
        ),
    ),
    Chapter(
        "lengths",
        "Lengths and judging",
        (
            Panel("Mean length", ("length/{stage}/mean",), unit="tokens"),
            Panel("Longest", ("length/{stage}/max",), unit="tokens"),
            Panel("Cut by the limit", ("truncated/{stage}",), unit="fraction"),
            Panel("Without an answer, or out of time", ("verifier/no_answer", "verifier/timeouts"), unit="responses"),
        ),
    ),
    Chapter(
        "mismatch",
        "Engine against actor",
        (
            Panel(
                "Difference of log-probabilities",
                ("mismatch/logprob_abs_mean", "mismatch/logprob_abs_max"),
                note="Mean and maximum over the step's tokens of the distance between engine and actor, same weights.",
                unit="nats",
                log=True,
            ),
            Panel("Ratio of probabilities", ("mismatch/prob_ratio",), unit="ratio"),
        ),
    ),
    Chapter(
        "time",
        "Where the time went",
        (
            Panel("Hours by part", note="The whole run; “other” is what no part accounts for.", draw=draw_time),
            Panel(
                "Seconds a step",
                ("time/step", "time/rollout", "time/train"),
                note="The whole collection step, collecting, and updating with the log-probabilities before it.",
                unit="seconds",
            ),
            Panel(
                "Idle",
                note="Share of each step in which the engine had no unfinished rollout, or the trainer did not work.",
                draw=draw_idle,
            ),
            Panel(
                "What each stage adds",
                note="Seconds in which only this stage, none before it, ran; judging: with no rollout left to run.",
                draw=draw_added,
            ),
            Panel(
                "The last collection",
                note="Unfinished rollouts of each stage while the last step was collected.",
                draw=draw_running,
            ),
            Panel("Throughput", ("throughput/generated", "throughput/trained"), unit="tokens/s/device"),
        ),
    ),
)
