"""What a run is: every section of a configuration, its keys, types, units and defaults.

Sections are frozen pydantic models that refuse unknown keys. Defaults are the paper's (Appendix B) where it gives one;
`docs/configuration.md` explains each key. Rules that span sections stand in `rules.py`, reading files in `loading.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from megatron_seirenes.config.questions import AttackSettings as AttackSettings
from megatron_seirenes.config.questions import BenchmarkSettings as BenchmarkSettings
from megatron_seirenes.config.questions import DistractorSettings as DistractorSettings
from megatron_seirenes.config.questions import EndpointSettings as EndpointSettings
from megatron_seirenes.config.questions import EvaluationSection, PrepareSection, ProblemsSection
from megatron_seirenes.config.questions import MasterySection as MasterySection
from megatron_seirenes.config.questions import ProblemSource as ProblemSource
from megatron_seirenes.config.section import Count, Fraction, NonNegative, Positive, PositiveInt, Section


class Budget(Section):
    """Ends a run early, at the first step boundary at or past any limit that is set."""

    hours: Positive | None = None
    generated_tokens: PositiveInt | None = None
    updates: PositiveInt | None = None


class RunSection(Section):
    name: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")] = "seirenes"
    dir: str | None = None
    seed: Count = 0
    collection_steps: Count = 200
    budget: Budget = Budget()


class NewModel(Section):
    """The shape of a model that does not exist yet; its weights are drawn from `run.seed`."""

    family: Literal["llama", "qwen2", "qwen3", "qwen3_moe"]
    tokenizer: str
    layers: PositiveInt
    hidden: PositiveInt
    ffn_size: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    max_positions: PositiveInt
    rope_theta: Positive = 10_000.0
    tied_embeddings: bool = False
    experts: PositiveInt | None = None
    experts_per_token: PositiveInt | None = None
    expert_ffn_size: PositiveInt | None = None
    initializer_std: Positive = 0.02


class ModelSection(Section):
    """The policy: a Hugging Face folder (`path`) or the shape of a new one (`new`), never both."""

    path: str | None = None
    new: NewModel | None = None
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    trust_remote_code: bool = False


class ParallelSection(Section):
    tensor: PositiveInt = 1
    pipeline: PositiveInt = 1
    virtual_pipeline: PositiveInt | None = None
    context: PositiveInt = 1
    expert: PositiveInt = 1
    expert_tensor: PositiveInt | None = None
    expert_dispatcher: Literal["alltoall", "allgather"] = "alltoall"
    sequence_parallel: bool = False
    distributed_optimizer: bool = False


class PrecisionSection(Section):
    """Number formats beside `model.dtype`. FP8 needs Transformer Engine on CUDA."""

    fp8: Literal["e4m3", "hybrid"] | None = None
    recipe: Literal["tensorwise", "delayed", "blockwise", "mxfp8"] | None = None
    router_dtype: Literal["float32", "float64"] | None = "float32"
    gradient_reduce_in_float32: bool = True


class ActorSection(Section):
    """How the actor computes; changes speed and memory, never results beyond rounding.

    A micro-batch is filled with whole sequences up to `micro_batch_tokens` (prompt and response tokens; a longer
    sequence stands alone). Log-probabilities are computed over `logprob_chunk_tokens` tokens at a time.
    """

    micro_batch_tokens: PositiveInt = 32_768
    logprob_chunk_tokens: PositiveInt = 1_024
    recompute: Literal["none", "selective", "full"] = "none"
    cpu_offload_optimizer: bool = False


class RolloutSection(Section):
    engine: Literal["vllm"] = "vllm"
    tensor: PositiveInt = 1
    max_prompt_tokens: PositiveInt = 4_096
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    barrier: bool = False
    max_sequences: PositiveInt = 256
    max_batched_tokens: PositiveInt | None = None
    memory_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    kv_cache_bytes: PositiveInt | None = None
    prefix_caching: bool = True
    cuda_graphs: bool = True
    expert_parallel: bool = False
    sync_bucket_bytes: PositiveInt = 512 * 2**20
    behaviour_logprobs: Literal["actor", "engine"] = "actor"


class StageSettings(Section):
    samples: PositiveInt | None = None
    max_tokens: PositiveInt | None = None


class HintMemorySettings(Section):
    """Off without `max_age`, which counts collection steps; `min_delta` is the least reward of a hint that is kept."""

    max_age: PositiveInt | None = None
    min_delta: Fraction = 0.25


class GameSection(Section):
    """The game and its numbers. The options after `stages` are those of some game, and ignored by the others."""

    name: str = "seirenes"
    stages: dict[str, StageSettings] = {}
    adversary: Literal["reinforce", "group_relative"] = "reinforce"
    robust_hints: Literal["all", "misleading", "strongest"] = "all"
    memory: HintMemorySettings = HintMemorySettings()
    hint_file: str | None = None
    hint_share: Annotated[float, Field(gt=0, lt=1)] = 0.5


class RoleSettings(Section):
    """Overrides one role: `prompt` is the path of a prompt file, or the name of a packaged one.

    `gate` names a check that a response must pass (null: none); a refused response earns `gate_penalty` as its reward.
    """

    prompt: str | None = None
    gate: str | None = None
    gate_penalty: Annotated[float, Field(le=0)] = -0.25


class StreamSettings(Section):
    """`capacity` defaults to 4 x `flush`; lags count optimizer steps, of this stream and of the whole policy."""

    enabled: bool = True
    flush: PositiveInt | None = None
    capacity: PositiveInt | None = None
    max_lag: Count = 3
    max_policy_lag: Count = 12
    max_flushes: PositiveInt = 1
    max_rounds: PositiveInt = 1


class ObjectiveSection(Section):
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(gt=0)] = 0.28
    reference_kl: NonNegative = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_unbiased: bool = False
    ratio: Literal["token", "sequence"] = "token"
    entropy_bonus: NonNegative = 0.0
    router_balance: NonNegative = 0.0
    router_z: NonNegative = 0.0
    aggregation: Literal["sequence_mean", "token_mean", "constant"] = "sequence_mean"
    advantage: Literal["standardized", "centered", "leave_one_out"] = "standardized"
    advantage_epsilon: Positive = 1e-6
    overlong_filter: bool = False
    overlong_penalty: NonNegative = 0.0
    overlong_cache: PositiveInt = 4_096
    correction: Literal["none", "truncated", "masked"] = "none"
    correction_level: Literal["token", "sequence"] = "token"
    correction_high: Annotated[float, Field(ge=1)] = 2.0
    correction_low: Fraction = 0.0


class OptimizerSection(Section):
    lr: NonNegative = 1e-6
    warmup_steps: Count = 0
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.01
    gradient_clip: Positive = 1.0


class EqualitySection(Section):
    """What is arguable about an answer being the gold; `docs/judge.md` explains each option."""

    percent: Literal["value", "unit"] = "value"
    units: Literal["optional", "required"] = "optional"
    unsimplified: Literal["refuse", "accept"] = "refuse"
    letter_case: Literal["strict", "ignore"] = "strict"
    decimal_digits: PositiveInt = 6
    relative_tolerance: NonNegative = 0.0


class VerifierSection(Section):
    """`cpu_seconds` is the limit of CPU time on one input, `memory_mb` of one worker's address space."""

    workers: PositiveInt = 1
    cpu_seconds: Positive = 5.0
    memory_mb: PositiveInt = 2_048
    extraction: Literal["boxed", "final_number", "choice"] = "boxed"
    equality: EqualitySection = EqualitySection()


class SnapshotSection(Section):
    """`every` counts collection steps (0: only at the end); `keep` newest stay, and every `keep_every`-th."""

    every: Count = 10
    keep: PositiveInt = 2
    keep_every: PositiveInt | None = None
    on_failure: Literal["stop", "continue"] = "stop"


class FaultsSection(Section):
    """When a run that is not healthy stops itself; a limit of null is never reached."""

    nonfinite_in_a_row: PositiveInt = 3
    mismatch_limit: Positive | None = 0.5
    collective_minutes: Positive = 30.0
    stalled_steps: PositiveInt | None = 1_000
    regenerations: Count = 3
    hung_minutes: Positive | None = 60.0


class ObserveSection(Section):
    console: Literal["auto", "live", "plain", "none"] = "auto"
    rollouts: bool = True
    timeline: bool = True
    tensorboard: bool = True
    wandb: bool = False
    verify_sync: Literal["never", "first", "every"] = "first"


class WarmupPhase(Section):
    """One pass of supervised learning: stops after `steps` updates, or once the moving loss is under `until_loss`.

    `decay` lowers the rate linearly to this fraction of `lr` over `steps`. Without `shuffle` records are learned in
    the order of the file.
    """

    records: str
    shuffle: bool = True
    steps: PositiveInt
    until_loss: Positive | None = None
    min_steps: Count = 0
    batch_size: PositiveInt = 64
    lr: Positive = 1e-3
    decay: Fraction = 1.0
    ramp_steps: Count = 20


class WarmupSection(Section):
    phases: list[WarmupPhase] = []
    out: str | None = None


class Config(Section):
    run: RunSection = RunSection()
    model: ModelSection = ModelSection()
    parallel: ParallelSection = ParallelSection()
    precision: PrecisionSection = PrecisionSection()
    actor: ActorSection = ActorSection()
    rollout: RolloutSection = RolloutSection()
    game: GameSection = GameSection()
    roles: dict[str, RoleSettings] = {}
    streams: dict[str, StreamSettings] = {}
    objective: ObjectiveSection = ObjectiveSection()
    optimizer: OptimizerSection = OptimizerSection()
    problems: ProblemsSection = ProblemsSection()
    verifier: VerifierSection = VerifierSection()
    snapshot: SnapshotSection = SnapshotSection()
    faults: FaultsSection = FaultsSection()
    observe: ObserveSection = ObserveSection()
    evaluation: EvaluationSection = EvaluationSection()
    prepare: PrepareSection = PrepareSection()
    warmup: WarmupSection = WarmupSection()
