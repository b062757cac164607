"""The one place that says which metrics exist, in what unit, and what they mean.

A metric key is slash-separated; a part in braces stands for a name: `{s}` a stream of the game, `{stage}` one of its
stages, `{benchmark}` a benchmark of the configuration, `{k}` a number of samples. `docs/metrics.md` is printed from
this table (`python -m megatron_seirenes.observe.metrics > docs/metrics.md`) and a test holds the two together. What it
refuses: a row with a key that stands in no entry, or with a value that is not a number or null.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["gauge", "count", "total", "flag", "duration"]
Value = float | int | None
Row = Mapping[str, Value]

KINDS: Mapping[Kind, str] = {
    "gauge": "its value at this step",
    "count": "how many during this step",
    "total": "how many since the run began",
    "flag": "0 or 1",
    "duration": "seconds spent during this step",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the table: a key pattern, its unit, what kind of number it is, and its meaning."""

    pattern: str
    unit: str
    kind: Kind
    meaning: str


@dataclass(frozen=True, slots=True)
class Section:
    """Entries that belong together, for the reader of docs/metrics.md."""

    title: str
    metrics: tuple[Metric, ...]


# fmt: off
SECTIONS: tuple[Section, ...] = (
    Section("Where the run stands", (
        Metric("step", "steps", "total", "The collection step that the row describes, counted from 1."),
        Metric("policy_version", "updates", "total",
               "Version of the only policy: optimizer steps since the run began."),
        Metric("rollout/rounds", "batches", "count",
               "Batches of questions that the step asked; more than 1 only where a stream has `max_rounds`."),
        Metric("metrics/nonfinite", "values", "count",
               "Values of this row that were NaN or infinite; they are written as null."),
    )),
    Section("Success and attack", (
        Metric("success/clean", "fraction", "gauge",
               "Mean over questions of p̂(q), the share of correct clean answers (Eq. 5)."),
        Metric("success/hinted", "fraction", "gauge",
               "Mean over pairs of question and hint of p̂(q,h), the share of correct answers under the hint (Eq. 8)."),
        Metric("attack/delta", "fraction", "gauge",
               "success/clean − success/hinted on the same batch (Appendix E); negative when hints help."),
        Metric("attack/strong", "flag", "flag", "1 when attack/delta is above 0.05, the paper's strong-attack step."),
        Metric("hints/distinct_fraction", "fraction", "gauge",
               "Different hint texts by all hints; falls towards 0 when the Adversary says the same to everything."),
        Metric("hints/entropy", "nats", "gauge",
               "Shannon entropy of the hint texts; the logarithm of their number when all differ, 0 when all are one."),
        Metric("hints/refused_fraction", "fraction", "gauge", "Hints that the role's gate refused, by all hints."),
    )),
    Section("Streams", (
        Metric("streams/{s}/candidates", "stream units", "count", "Groups that the game credited to the stream."),
        Metric("streams/{s}/zero_advantage", "stream units", "count",
               "Candidates dropped because every advantage was zero."),
        Metric("streams/{s}/accepted", "stream units", "count", "Candidates that entered the queue."),
        Metric("streams/{s}/evicted_stale", "stream units", "count",
               "Groups dropped from the queue because their lag passed a limit."),
        Metric("streams/{s}/evicted_overflow", "stream units", "count",
               "Oldest groups dropped because the queue was full."),
        Metric("streams/{s}/pending", "stream units", "gauge", "Groups waiting at the end of the step."),
        Metric("streams/{s}/updates", "updates", "count", "Flushes, each one optimizer step on exactly M_s units."),
        Metric("streams/{s}/updates_total", "updates", "total", "Flushes of the stream since the run began."),
        Metric("streams/{s}/lag_mean", "updates", "gauge",
               "Mean over the groups trained in this step of the stream's own updates since their generation."),
        Metric("streams/{s}/lag_max", "updates", "gauge",
               "The largest lag of a trained group in updates of its own stream."),
        Metric("streams/{s}/policy_lag_max", "updates", "gauge",
               "The largest number of updates of the whole policy since the generation of a trained group."),
        Metric("streams/{s}/skipped_nonfinite", "updates", "count",
               "Flushes spent on an update that was not made because loss, gradient or a reward was not finite."),
        Metric("streams/{s}/suspended", "flag", "flag",
               "1 when the stream was full at the start of the step and asked for no rollouts."),
    )),
    Section("Learning", (
        Metric("loss/{s}", "loss", "gauge", "Loss of the stream's flush; mean over the flushes of the step."),
        Metric("grad_norm/{s}", "norm", "gauge", "Global gradient norm before clipping."),
        Metric("ppo_kl/{s}", "nats", "gauge",
               "Mean over tokens of log π_old − log π: how far the update moves from the behaviour policy."),
        Metric("reference_kl/{s}", "nats", "gauge", "Mean over tokens of the KL estimate to the reference policy."),
        Metric("clip_fraction/{s}", "fraction", "gauge",
               "Tokens whose ratio was clipped; null where the objective has no ratio."),
        Metric("entropy/{s}", "nats", "gauge", "Mean over trained tokens of the policy's entropy."),
        Metric("correction_mean/{s}", "ratio", "gauge",
               "Mean over trained tokens of π_old by the engine's probability, before any is truncated or masked; "
               "null without objective.correction, as the three below."),
        Metric("correction_outside/{s}", "fraction", "gauge", "Tokens whose ratio is beyond the bounds."),
        Metric("sequence_correction_mean/{s}", "ratio", "gauge",
               "Mean over trained responses of the ratio of the whole response, before any is truncated or masked."),
        Metric("sequence_correction_outside/{s}", "fraction", "gauge",
               "Responses whose ratio is beyond the bounds."),
        Metric("advantage/{s}/mean", "advantage", "gauge", "Mean advantage over the flush's sequences."),
        Metric("advantage/{s}/std", "advantage", "gauge",
               "Standard deviation of the advantage over the flush's sequences."),
    )),
    Section("Engine against actor", (
        Metric("mismatch/logprob_abs_mean", "nats", "gauge",
               "Mean over this step's tokens of |log π_engine − log π_actor| under the weights that made them."),
        Metric("mismatch/logprob_abs_max", "nats", "gauge",
               "The largest |log π_engine − log π_actor| of a token of this step."),
        Metric("mismatch/prob_ratio", "ratio", "gauge", "Mean of exp|log π_engine − log π_actor|; 1 is perfect."),
    )),
    Section("Generation", (
        Metric("rollout/inexact", "flag", "flag",
               "1 when generation had stopped moving and was asked again with the same seeds: made anew, this step may "
               "differ in its last bits."),
    )),
    Section("Mastery", (
        Metric("mastery/retired", "questions", "total", "Questions retired because they are mastered."),
        Metric("mastery/live_fraction", "fraction", "gauge", "Questions still asked, by all questions."),
        Metric("mastery/saved_fraction", "fraction", "gauge",
               "Rollout work saved by retirement since the run began, by the linear estimate of Appendix D."),
    )),
    Section("Lengths", (
        Metric("length/{stage}/mean", "tokens", "gauge", "Mean response length, the stop token included."),
        Metric("length/{stage}/max", "tokens", "gauge", "Longest response."),
        Metric("truncated/{stage}", "fraction", "gauge", "Responses cut by the token limit."),
    )),
    Section("Judging", (
        Metric("verifier/judged", "responses", "count", "Responses that were judged."),
        Metric("verifier/timeouts", "responses", "count", "Verdicts that hit the limit of CPU time."),
        Metric("verifier/no_answer", "responses", "count", "Responses without an extractable answer."),
        Metric("verifier/seconds", "CPU seconds", "duration", "CPU time of all verdicts together, over all workers."),
    )),
    Section("Time and tokens", (
        Metric("time/rollout", "seconds", "duration",
               "Collecting: generating, judging meanwhile, and time/judge_wait."),
        Metric("time/judge_wait", "seconds", "duration",
               "The part of time/rollout after generation had ended, waiting for verdicts."),
        Metric("time/train", "seconds", "duration",
               "Updates, and the log-probabilities recomputed before the first of them."),
        Metric("time/sync", "seconds", "duration", "Moving weights into the engine."),
        Metric("time/snapshot", "seconds", "duration", "Writing a snapshot."),
        Metric("time/evaluation", "seconds", "duration", "Evaluating during training."),
        Metric("time/step", "seconds", "duration", "The whole collection step."),
        Metric("tokens/generated", "tokens", "count", "Response tokens drawn by the engine."),
        Metric("tokens/trained", "tokens", "count", "Response tokens that entered an update."),
        Metric("throughput/generated", "tokens/s/device", "gauge",
               "Response tokens drawn, by second of time/rollout and by device."),
        Metric("throughput/trained", "tokens/s/device", "gauge",
               "Response tokens trained on, by second of time/train and by device."),
    )),
    Section("Evaluation", (
        Metric("evaluation/{benchmark}/avg@{k}", "fraction", "gauge",
               "Mean over questions of the share of correct samples."),
        Metric("evaluation/{benchmark}/avg@{k}/low", "fraction", "gauge",
               "Lower end of the 95 % interval of avg@k over questions."),
        Metric("evaluation/{benchmark}/avg@{k}/high", "fraction", "gauge",
               "Upper end of the 95 % interval of avg@k over questions."),
        Metric("evaluation/{benchmark}/pass@{k}", "fraction", "gauge", "Questions with at least one correct sample."),
        Metric("evaluation/{benchmark}/maj@{k}", "fraction", "gauge",
               "Questions whose most frequent answer is correct."),
    )),
)
# fmt: on

METRICS: tuple[Metric, ...] = tuple(metric for section in SECTIONS for metric in section.metrics)

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def _compile(pattern: str) -> re.Pattern[str]:
    parts = _PLACEHOLDER.split(pattern)
    names = {"k": r"(?P<k>\d+)"}
    literal, named = parts[::2], [names.get(part, rf"(?P<{part}>[^/]+)") for part in parts[1::2]]
    made = [re.escape(text) + name for text, name in zip(literal, [*named, ""], strict=True)]
    return re.compile("".join(made))


_COMPILED = tuple((_compile(metric.pattern), metric) for metric in METRICS)
_EXACT = {metric.pattern: metric for metric in METRICS if "{" not in metric.pattern}


@lru_cache(maxsize=4096)
def find(key: str) -> Metric | None:
    """The entry that `key` belongs to; None when no entry has it."""
    if key in _EXACT:
        return _EXACT[key]
    return next((metric for pattern, metric in _COMPILED if pattern.fullmatch(key)), None)


def describe(key: str) -> Metric:
    """The entry that `key` belongs to. Raises ValueError naming the nearest known patterns."""
    metric = find(key)
    if metric is None:
        near = difflib.get_close_matches(key, [metric.pattern for metric in METRICS], n=3, cutoff=0.5)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise ValueError(f"metric {key!r} stands in no entry of observe/metrics.py{hint}")
    return metric


def placeholders(key: str) -> Mapping[str, str]:
    """What the braces of its pattern stand for in `key`: `{"s": "clean"}` for `streams/clean/pending`."""
    metric = describe(key)
    match = _compile(metric.pattern).fullmatch(key)
    return match.groupdict() if match else {}


def validate_row(
    row: Mapping[str, object], streams: Iterable[str] | None = None, stages: Iterable[str] | None = None
) -> None:
    """Checks one row of metrics.jsonl. Raises ValueError with every fault of the row.

    Each key must be known, each value a number (not a bool) or null, and `step` a positive integer or 0. With `streams`
    or `stages`, the names in braces must be among them.
    """
    allowed = {"s": None if streams is None else set(streams), "stage": None if stages is None else set(stages)}
    faults = [fault for key, value in row.items() for fault in _faults(key, value, allowed)]
    step = row.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        faults.insert(0, f"step is {step!r}, not an integer of at least 0")
    if faults:
        raise ValueError("a row of metrics is wrong: " + "; ".join(faults))


def _faults(key: str, value: object, allowed: Mapping[str, set[str] | None]) -> Iterable[str]:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        yield f"{key} is {value!r}, neither a number nor null"
    if find(key) is None:
        try:
            describe(key)
        except ValueError as error:
            yield str(error)
        return
    for name, stands_for in placeholders(key).items():
        known = allowed.get(name)
        if known is not None and stands_for not in known:
            yield f"{key}: {stands_for!r} is not one of {sorted(known)}"


def markdown() -> str:
    """docs/metrics.md, whole."""
    # fmt: off
    lines = [
        "# Metrics", "",
        "`metrics.jsonl` holds one JSON object a collection step, with these keys; TensorBoard and Weights & Biases",
        "show the same numbers under the same names. A value is null where there was nothing to measure: a stage that",
        "did not run, a stream that was not flushed, a KL without a reference.", "",
        "`{s}` is a stream of the game, `{stage}` one of its stages, `{benchmark}` a benchmark, `{k}` a number of",
        "samples. A stream unit is a group of rollouts that share a prompt; for the adversary it is one hint.", "",
        *(f"* *{kind}*: {meaning}" for kind, meaning in KINDS.items()), "",
        "This page is printed from `megatron_seirenes/observe/metrics.py` by",
        "`python -m megatron_seirenes.observe.metrics > docs/metrics.md`.",
    ]
    # fmt: on
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", "| key | unit | kind | meaning |", "|---|---|---|---|"]
        lines += [f"| `{m.pattern}` | {m.unit} | {m.kind} | {_cell(m.meaning)} |" for m in section.metrics]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    print(markdown(), end="")
