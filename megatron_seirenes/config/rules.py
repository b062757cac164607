"""Rules that span keys: each a small function that yields a fault for every breach and nothing else.

`cross_field_faults` holds for every command. `training_faults` adds what only `train` needs, and what depends on the
machine that trains: a file may leave the model open, and a cluster's file may be checked on a laptop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from megatron_seirenes.config.faults import Fault, nearest, render
from megatron_seirenes.config.game_rules import (
    capacities,
    context_holds,
    flushes_are_fresh,
    groups_compare,
    hints_fit_prompts,
    memory_is_learned_from,
    some_stream_lives,
    unknown_names,
)
from megatron_seirenes.config.objective_rules import correction_settings, overlong_slope
from megatron_seirenes.config.schema import Config, NewModel, ProblemSource
from megatron_seirenes.config.shape import MODEL, Shape, shape_of
from megatron_seirenes.errors import DataError

# What vLLM's attention accepts on a CPU; its CUDA back ends accept these too.
HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)

NO_EXPERT_PARALLEL = "vLLM 0.32's expert kernels for CPUs take no expert map"


def cross_field_faults(config: Config) -> list[Fault]:
    """Every breach of a rule that spans keys."""
    faults: list[Fault] = []
    try:
        shape = shape_of(config.model)
    except DataError as error:
        faults.append(Fault("model.path", str(error)))
        shape = None
    for rule in (
        unknown_names,
        capacities,
        some_stream_lives,
        groups_compare,
        flushes_are_fresh,
        memory_is_learned_from,
        hints_fit_prompts,
        correction_settings,
        overlong_slope,
        one_model,
        new_model,
        pipeline_is_real,
        sequence_parallel_is_real,
        fp8_settings,
        batch_holds_sequences,
        problem_sources,
        benchmarks,
        warmup_phases,
    ):
        faults += rule(config)
    for shaped_rule in (context_holds, experts_divide, tensor_divides, pipeline_divides):
        faults += shaped_rule(config, shape)
    return faults


def training_faults(config: Config, *, cuda: bool | None = None, world_size: int | None = None) -> list[str]:
    """One line for everything that stops `train`, empty when it can start.

    `cuda` says whether this machine has CUDA devices and `world_size` counts the processes of this launch; what
    depends on one of them is checked when it is given.
    """
    faults: list[Fault] = []
    if config.model.path is None and config.model.new is None:
        faults.append(Fault("model", "no policy is given: set model.path to a Hugging Face folder, or model.new"))
    if not config.problems.train:
        faults.append(Fault("problems.train", "no questions are given: name at least one source"))
    if config.rollout.top_p != 1:
        faults.append(
            Fault(
                "rollout.top_p",
                f"must be 1 for training, seen {config.rollout.top_p}: importance ratios need the full distribution",
            )
        )
    if config.precision.fp8 is not None and cuda is False:
        faults.append(Fault("precision.fp8", f"{config.precision.fp8} needs a CUDA device, and this machine has none"))
    if config.rollout.expert_parallel and cuda is False:
        faults.append(Fault("rollout.expert_parallel", f"true needs a CUDA device: {NO_EXPERT_PARALLEL}"))
    if world_size is not None:
        faults += layout_fits(config, world_size)
    return [render(fault, {}) for fault in faults]


def layout_fits(config: Config, world_size: int) -> Iterator[Fault]:
    """Every parallel layout must tile the processes."""
    parallel = config.parallel
    expert_tensor = parallel.expert_tensor or parallel.tensor
    for key, factors in (
        ("parallel.tensor", {"tensor": parallel.tensor, "pipeline": parallel.pipeline, "context": parallel.context}),
        ("parallel.expert", {"expert": parallel.expert, "expert_tensor": expert_tensor, "pipeline": parallel.pipeline}),
        ("rollout.tensor", {"rollout.tensor": config.rollout.tensor}),
    ):
        block = 1
        for factor in factors.values():
            block *= factor
        if world_size % block:
            product = " x ".join(f"{name} {value}" for name, value in factors.items())
            yield Fault(key, f"{product} = {block} does not divide the {world_size} processes of this launch")


def one_model(config: Config) -> Iterator[Fault]:
    if config.model.path is not None and config.model.new is not None:
        yield Fault("model.new", "given beside model.path: keep one, and set the other to null", ("model.path",))


def new_model(config: Config) -> Iterator[Fault]:
    new = config.model.new
    if new is None:
        return
    if new.head_dim not in HEAD_DIMS:
        yield Fault("model.new.head_dim", f"must be one of {', '.join(map(str, HEAD_DIMS))}; seen {new.head_dim}")
    if new.heads % new.kv_heads:
        yield Fault(
            "model.new.kv_heads",
            f"{new.kv_heads} does not divide model.new.heads ({new.heads})",
            about=("model.new.heads",),
        )
    yield from _experts_of_new_model(new)


def _experts_of_new_model(new: NewModel) -> Iterator[Fault]:
    fields = {
        "experts": new.experts,
        "experts_per_token": new.experts_per_token,
        "expert_ffn_size": new.expert_ffn_size,
    }
    about = ("model.new.family", *(f"model.new.{name}" for name in fields))
    mixture = new.family.endswith("_moe")
    for name, value in fields.items():
        if mixture and value is None:
            yield Fault(f"model.new.{name}", f"is missing: family {new.family} is a mixture of experts", about)
        if not mixture and value is not None:
            yield Fault(f"model.new.{name}", f"family {new.family} has no experts: drop it, or use qwen3_moe", about)
    if mixture and new.hidden % 32:
        yield Fault(
            "model.new.hidden", f"must be a multiple of 32 in a mixture of experts; seen {new.hidden}", about
        )
    if new.experts and new.experts_per_token and new.experts_per_token > new.experts:
        yield Fault(
            "model.new.experts_per_token",
            f"{new.experts_per_token} is more than the {new.experts} experts (model.new.experts)",
            about,
        )


def experts_divide(config: Config, shape: Shape | None) -> Iterator[Fault]:
    if shape is None:
        return
    parallel = config.parallel
    if shape.experts == 0:
        if parallel.expert > 1:
            yield Fault("parallel.expert", f"{parallel.expert} needs a mixture of experts: this model is dense", MODEL)
        if config.rollout.expert_parallel:
            yield Fault("rollout.expert_parallel", "true needs a mixture of experts: this model is dense", MODEL)
        return
    if shape.experts % parallel.expert:
        yield Fault(
            "parallel.expert", f"{parallel.expert} does not divide the model's {shape.experts} experts", MODEL
        )
    if parallel.tensor > 1 and not parallel.sequence_parallel:
        yield Fault(
            "parallel.sequence_parallel",
            f"must be true when a mixture of experts trains with parallel.tensor {parallel.tensor}",
            about=("parallel.tensor", *MODEL),
        )
    expert_tensor = parallel.expert_tensor or parallel.tensor
    if shape.expert_ffn_size % expert_tensor:
        yield Fault(
            "parallel.expert_tensor",
            f"{expert_tensor} does not divide the experts' intermediate size {shape.expert_ffn_size}",
            about=("parallel.tensor", *MODEL),
        )


def tensor_divides(config: Config, shape: Shape | None) -> Iterator[Fault]:
    if shape is None:
        return
    tensor = config.parallel.tensor
    sizes = {"attention heads": shape.heads, "key-value heads": shape.kv_heads}
    if shape.experts == 0:
        sizes["intermediate size"] = shape.ffn_size
    uneven = [f"{name} ({size})" for name, size in sizes.items() if size % tensor]
    if uneven:
        yield Fault("parallel.tensor", f"{tensor} does not divide the model's {', '.join(uneven)}", MODEL)
    replica = config.rollout.tensor
    if shape.heads % replica or (shape.kv_heads % replica and replica % shape.kv_heads):
        yield Fault(
            "rollout.tensor",
            f"{replica} does not divide the model's {shape.heads} attention and {shape.kv_heads} key-value heads",
            about=MODEL,
        )


def pipeline_divides(config: Config, shape: Shape | None) -> Iterator[Fault]:
    if shape is None:
        return
    pipeline, virtual = config.parallel.pipeline, config.parallel.virtual_pipeline or 1
    if shape.layers % (pipeline * virtual):
        chunks = f"{pipeline} stages" + (f" x {virtual} virtual (parallel.virtual_pipeline)" if virtual > 1 else "")
        yield Fault(
            "parallel.pipeline",
            f"{chunks} do not divide the model's {shape.layers} layers",
            about=("parallel.virtual_pipeline", *MODEL),
        )


def pipeline_is_real(config: Config) -> Iterator[Fault]:
    if (config.parallel.virtual_pipeline or 1) > 1 and config.parallel.pipeline == 1:
        yield Fault(
            "parallel.virtual_pipeline",
            f"{config.parallel.virtual_pipeline} needs parallel.pipeline above 1",
            about=("parallel.pipeline",),
        )


def sequence_parallel_is_real(config: Config) -> Iterator[Fault]:
    if config.parallel.sequence_parallel and config.parallel.tensor == 1:
        yield Fault("parallel.sequence_parallel", "true needs parallel.tensor above 1", about=("parallel.tensor",))


def fp8_settings(config: Config) -> Iterator[Fault]:
    precision = config.precision
    if precision.recipe is not None and precision.fp8 is None:
        yield Fault("precision.recipe", f"{precision.recipe} has no effect without precision.fp8", ("precision.fp8",))
    if precision.fp8 is not None and config.model.dtype != "bfloat16":
        yield Fault(
            "precision.fp8", f"needs model.dtype bfloat16; seen {config.model.dtype}", about=("model.dtype",)
        )


def batch_holds_sequences(config: Config) -> Iterator[Fault]:
    batch, sequences = config.rollout.max_batched_tokens, config.rollout.max_sequences
    if batch is not None and batch < sequences:
        yield Fault(
            "rollout.max_batched_tokens",
            f"{batch} is below rollout.max_sequences ({sequences}): every running sequence needs a token a step",
            about=("rollout.max_sequences",),
        )


def problem_sources(config: Config) -> Iterator[Fault]:
    """A source is a file, or a task that is told how many questions to make."""
    for index, source in enumerate(config.problems.train):
        yield from _file_or_task(f"problems.train.{index}", source)
    for name, benchmark in config.evaluation.benchmarks.items():
        yield from _file_or_task(f"evaluation.benchmarks.{name}.problems", benchmark.problems)


def _file_or_task(key: str, source: ProblemSource) -> Iterator[Fault]:
    given = [name for name in ("path", "hub", "task") if getattr(source, name) is not None]
    if len(given) != 1:
        seen = f"{' and '.join(given)} are given" if given else "none is given"
        yield Fault(key, f"must give one of path (a file), hub (a data set) and task (a procedural one); {seen}")
    elif source.task is not None and source.count is None:
        yield Fault(f"{key}.count", "is missing: a procedural task has no end")


_BENCHMARK_NAME = re.compile(r"[A-Za-z0-9._-]+")


def benchmarks(config: Config) -> Iterator[Fault]:
    """Benchmarks have names that can be files, what their distractors need, and twins and suites that exist."""
    needed = {"file": ("path",), "task": ("name",), "endpoint": ("path", "endpoint")}
    known = config.evaluation.benchmarks
    for name, benchmark in known.items():
        key = f"evaluation.benchmarks.{name}"
        if not _BENCHMARK_NAME.fullmatch(name):
            yield Fault(key, "a benchmark's name is part of file names: letters, digits, dots, dashes and underscores")
        if benchmark.clean is not None and (benchmark.clean not in known or benchmark.clean == name):
            near = nearest(benchmark.clean, list(known))
            yield Fault(f"{key}.clean", f"{benchmark.clean!r} is no other benchmark; {near}")
        settings = benchmark.distractors
        if settings is None:
            continue
        for field in needed.get(settings.kind, ()):
            if getattr(settings, field) is None:
                about = (f"{key}.distractors.kind",)
                yield Fault(f"{key}.distractors.{field}", f"is missing: {about[0]} is {settings.kind}", about)
    for suite, names in config.evaluation.suites.items():
        for name in names:
            if name not in known:
                yield Fault(f"evaluation.suites.{suite}", f"{name!r} is no benchmark; {nearest(name, list(known))}")


def warmup_phases(config: Config) -> Iterator[Fault]:
    for index, phase in enumerate(config.warmup.phases):
        if phase.min_steps > phase.steps:
            key = f"warmup.phases.{index}"
            yield Fault(f"{key}.min_steps", f"{phase.min_steps} is more than {key}.steps ({phase.steps})")
