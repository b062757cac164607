"""The sections about questions: where they come from, how a set of them is prepared, and what they measure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from megatron_seirenes.config.section import Count, NonNegative, Positive, PositiveInt, Section


class ProblemSource(Section):
    """Where questions come from: a file or folder (`path`, read as `format`), a data set of the hub, or a `task`.

    `columns` maps id, question, answer, choices and distractor to the column names of the file, for formats that are
    not known by name. `files` is a glob inside a folder or data set. `split` of a procedural task keeps templates for
    evaluation out of training.
    """

    path: str | None = None
    hub: str | None = None
    revision: str | None = None
    files: str | None = None
    format: str | None = None
    columns: dict[str, str] = {}
    task: str | None = None
    options: dict[str, int | float | str | bool] = {}
    split: Literal["train", "held_out"] = "train"
    count: PositiveInt | None = None
    seed: Count = 0


class MasterySection(Section):
    """A question is retired after `streak` (K_m) consecutive mastered steps.

    `revisit` is the share of a step's places that ask retired questions again; what is not mastered then is live again.
    """

    enabled: bool = True
    criterion: Literal["all_hints", "paper", "clean"] = "all_hints"
    streak: PositiveInt = 1
    revisit: Annotated[float, Field(ge=0, lt=1)] = 0.0


class ProblemsSection(Section):
    train: list[ProblemSource] = []
    per_step: PositiveInt = 256
    bad_rows: Literal["error", "skip"] = "error"
    mastery: MasterySection = MasterySection()


class PrepareSection(Section):
    """A difficulty-balanced subset of `problems.train` (paper, Appendix B), for `tools/prepare_problems.py`.

    `near_duplicate` is the share of common word triples from which two questions with the same numbers are one;
    `overlap_words` the words in a row that a question may not share with a benchmark's.
    """

    out: str | None = None
    count: PositiveInt | None = None
    rollouts: PositiveInt = 8
    max_tokens: PositiveInt | None = None
    buckets: PositiveInt = 4
    near_duplicate: Annotated[float, Field(gt=0, le=1)] = 0.8
    overlap_words: PositiveInt = 13
    seed: Count = 0


class EndpointSettings(Section):
    """A model behind an OpenAI-compatible endpoint; the key is read from the environment and never written.

    Prices are a currency unit for a million tokens; `max_spend` stops before the next request once it is reached.
    """

    base_url: str | None = None
    model: str
    key_variable: str | None = "OPENAI_API_KEY"
    max_tokens: PositiveInt = 16_384
    temperature: NonNegative | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    token_limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    parallel: PositiveInt = 8
    requests_per_minute: PositiveInt | None = None
    retries: Count = 8
    timeout_seconds: Positive = 600.0
    price_input: NonNegative = 0.0
    price_output: NonNegative = 0.0
    max_spend: Positive | None = None


class DistractorSettings(Section):
    """What stands beside a benchmark's question: `kind` says where it comes from.

    `file` (`path`), `column` (the questions' own file), `task` (`name`), `policy` (its own Adversary) or `endpoint`
    (a model asked with the prompt `prompt`, its answers cached in the file `path`).
    """

    kind: Literal["file", "column", "task", "policy", "endpoint"]
    path: str | None = None
    name: str | None = None
    max_tokens: PositiveInt | None = None
    prompt: str = "distractor"
    endpoint: EndpointSettings | None = None


class BenchmarkSettings(Section):
    """`clean` names the benchmark of the same questions without perturbation, for robustness degradation."""

    problems: ProblemSource
    samples: PositiveInt = 1
    max_tokens: PositiveInt | None = None
    extraction: Literal["boxed", "final_number", "choice"] | None = None
    distractors: DistractorSettings | None = None
    clean: str | None = None


class AttackSettings(Section):
    """Whom `seirenes attack` attacks: a model folder (`target`) or an `endpoint`; hints from the policy or a file."""

    target: str | None = None
    endpoint: EndpointSettings | None = None
    samples: PositiveInt = 3
    hints: str | None = None


class AuditSettings(Section):
    samples: PositiveInt = 8


class EvaluationSection(Section):
    """`every` counts collection steps (0: not during training); `suites` average benchmarks, by name."""

    every: Count = 0
    benchmarks: dict[str, BenchmarkSettings] = {}
    suites: dict[str, list[str]] = {}
    temperature: NonNegative = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Count = 0
    attack: AttackSettings = AttackSettings()
    audit: AuditSettings = AuditSettings()
