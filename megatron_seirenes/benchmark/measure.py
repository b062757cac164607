"""The program that every rank of one layout runs: `torchrun ... -m megatron_seirenes.benchmark.measure SPEC OUT`.

Sequences are random ids, drawn from the seed alone, so that every layout does the same work. Each phase starts and ends
at a barrier: a second is a second of the slowest rank. Rank 0 writes the result; a rank that fails writes its reason.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.sequences import TokenSequence, TrainingSequence
from megatron_seirenes.architecture import Architecture, read_architecture
from megatron_seirenes.benchmark.cases import PHASES, Result, Work, known_peak, median, spread
from megatron_seirenes.bridge.plan import plan_of
from megatron_seirenes.bridge.plan_layouts import TrainingLayout
from megatron_seirenes.bridge.transport import Transport
from megatron_seirenes.config.loading import load_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import World, start_distributed, stop_distributed
from megatron_seirenes.device.quiet import quieten_libraries
from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.objectives.token_loss import LossSum, TokenBatch
from megatron_seirenes.planning.duration import forward_flops
from megatron_seirenes.records import Request, Sampling
from megatron_seirenes.rollouts.vllm_engine import VLLMEngine


class Bench:
    """Actor and engine of one rank, and the four phases."""

    def __init__(self, config: Config, work: Work, world: World, architecture: Architecture):
        self.work, self.world, self.architecture = work, world, architecture
        folder = Path(config.model.path or "")
        self.actor = Actor(architecture, config, world.backend)
        self.actor.load_hf(folder)
        self.engine = VLLMEngine(
            folder,
            config,
            architecture=architecture,
            stop_ids=(),
            sampled_vocabulary=None,
            backend=world.backend,
            max_length=work.prompt_tokens + work.response_tokens,
        )
        training = TrainingLayout.of(config.parallel, world.size)
        self.plan = plan_of(config, architecture, world.size)
        groups = world.size // (training.tensor * training.context * training.pipeline)
        group = world.rank % (world.size // training.pipeline) // (training.tensor * training.context)
        self.learned = list(spread(work.sequences, groups))[group]
        replica = config.rollout.tensor
        self.asked = list(spread(work.sequences, world.size // replica))[world.rank // replica]
        self.version = 0

    def rollout(self) -> None:
        for index in self.asked:
            self.engine.submit(self._request(index))
        while self.engine.has_unfinished():
            self.engine.step()

    def scoring(self) -> None:
        self.actor.logprobs([self._sequence(index) for index in self.learned])

    def training(self) -> None:
        count = self.work.response_tokens
        tokens = self.work.sequences * count
        sequences = [self._sequence(index) for index in self.learned]
        self.actor.update(
            [
                TrainingSequence(one.prompt_ids, one.response_ids, (0.0,) * count, 1.0, 1.0 / tokens)
                for one in sequences
            ],
            _likelihood,
            learning_rate=1e-7,
        )

    def sync(self) -> None:
        self.version += 1
        transport = Transport(self.actor.modules, self.architecture, self.plan)
        self.engine.load_weights(transport.tensors(), self.version)

    def step(self) -> None:
        for phase in PHASES:
            getattr(self, phase)()

    def seconds(self) -> dict[str, float]:
        """The median of each phase alone, and of all in a row."""
        return {
            phase: median([self._timed(getattr(self, phase)) for _ in self._runs()][1:]) for phase in (*PHASES, "step")
        }

    def _runs(self) -> range:
        return range(self.work.repeats + 1)

    def _timed(self, call: Callable[[], None]) -> float:
        self._wait()
        started = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        self.world.backend.synchronize()
        if self.world.size > 1:
            dist.barrier()

    def _ids(self, index: int, length: int, what: str) -> tuple[int, ...]:
        drawn = random.Random(f"{self.work.seed} {what} {index}")
        return tuple(drawn.randrange(self.architecture.vocabulary) for _ in range(length))

    def _sequence(self, index: int) -> TokenSequence:
        return TokenSequence(
            self._ids(index, self.work.prompt_tokens, "prompt"), self._ids(index, self.work.response_tokens, "response")
        )

    def _request(self, index: int) -> Request:
        prompt = self._ids(index, self.work.prompt_tokens, "prompt")
        sampling = Sampling(max_tokens=self.work.response_tokens)
        return Request(str(index), str(index), "R1", (index,), "reasoner", "shared", prompt, sampling, seed=index)


def measure(config: Config, work: Work, layout: str) -> Result:
    """Measures one layout; the same result on every rank. Raises SeirenesError for a layout that cannot run."""
    world = start_distributed(config.parallel)
    try:
        architecture = read_architecture(config.model.path or "")
        bench = Bench(config, work, world, architecture)
        try:
            seconds = bench.seconds()
        finally:
            bench.engine.close()
        length = work.prompt_tokens + work.response_tokens
        device = torch.cuda.get_device_name(world.backend.device) if world.backend.is_cuda else "CPU"
        return Result(
            layout=layout,
            devices=world.size,
            device=device,
            seconds=seconds,
            peak_bytes=_largest_peak(world),
            tokens=work.sequences * work.response_tokens,
            flops=3 * forward_flops(architecture, length) * work.sequences * length,
            peak_flops=known_peak(device),
            sync_bytes=bench.plan.total,
        )
    finally:
        stop_distributed()


def _likelihood(batch: TokenBatch) -> LossSum:
    """The cheapest loss there is: it costs nothing beside the model."""
    loss = -(batch.logprobs * batch.weights).sum()
    return LossSum(loss, {"tokens": batch.weights.new_tensor(float(batch.logprobs.numel()))})


def _largest_peak(world: World) -> int:
    if world.backend.is_cuda:
        peak = torch.cuda.max_memory_allocated(world.backend.device)
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if world.size == 1:
        return peak
    peaks: list[Any] = [0] * world.size
    dist.all_gather_object(peaks, peak)
    return max(peaks)


def main(spec: Path, out: Path) -> int:
    quieten_libraries()
    asked = json.loads(spec.read_text(encoding="utf-8"))
    try:
        config = load_config(asked["config"], asked["overrides"])
        result = measure(config, Work(**asked["work"]), asked["layout"])
    except (SeirenesError, ValueError, AssertionError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}".replace("SeirenesError: ", "")
        out.with_suffix(".reason").write_text(reason, encoding="utf-8")
        return 1
    if int(os.environ.get("RANK", "0")) == 0:
        out.write_text(json.dumps(asdict(result)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
