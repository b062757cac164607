"""A toy run without Megatron or vLLM: the real loop, scheduler, streams and sampler over an engine made of hashes.

Several ranks run as threads of one process (`toy_ranks.py`).

The toy actor is one number that every update changes; the engine's tokens depend on that number, so a run that goes on
wrongly after a stop shows in every later rollout.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import torch

from megatron_seirenes.config.schema import Config
from megatron_seirenes.games.game import Game
from megatron_seirenes.games.registry import StreamOverrides, build_game
from megatron_seirenes.objectives.registry import build_loss
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.records import Problem, Request, Verdict
from megatron_seirenes.rollouts.engine import Completion
from megatron_seirenes.rollouts.scheduler import RolloutScheduler
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.streams.streams import Streams
from megatron_seirenes.trainer.health import Health
from megatron_seirenes.trainer.loop import Trainer
from megatron_seirenes.trainer.parts import Parts
from megatron_seirenes.trainer.ranks import ALONE, any_of_replica
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.shared_judge import shared_judge
from megatron_seirenes.trainer.snapshot import newest_sound_snapshot, read_state
from megatron_seirenes.trainer.watch import watch_of


class ToyEngine:
    def __init__(self):
        self.policy_version = -1
        self.weight = 0.0
        self.requests: list[Request] = []

    def submit(self, request: Request) -> None:
        self.requests.append(request)

    def step(self) -> Sequence[Completion]:
        done, self.requests = self.requests[:7], self.requests[7:]
        return [self._answer(request) for request in done]

    def _answer(self, request: Request) -> Completion:
        draw = random.Random(stable_seed(request.seed, repr(self.weight)))
        ids = tuple(draw.randrange(10) for _ in range(draw.randint(1, request.sampling.max_tokens)))
        return Completion(request.id, ids, tuple(-0.1 * (i + 1) for i in ids), "stop")

    def has_unfinished(self) -> bool:
        return bool(self.requests)

    def drawn_tokens(self) -> int:
        return 0

    def abort(self, request_ids: Iterable[str]) -> None:
        self.requests = []

    def load_weights(self, tensors, policy_version: int) -> None:
        self.weight = dict(tensors)["weight"].item()
        self.policy_version = policy_version

    def sleep(self) -> None: ...

    def wake(self) -> None: ...


class ToyJudge:
    """Right when the last digit of the response is below 6; the digits of a hint make it harder."""

    def __init__(self):
        self.waiting: list[tuple[str, Verdict]] = []

    def submit(self, key: str, gold: str, response: str) -> None:
        correct = response.endswith(tuple("012345"))
        self.waiting.append((key, Verdict(correct, response[-1:], "match" if correct else "mismatch", 0.0)))

    def ready(self):
        done, self.waiting = self.waiting, []
        return done

    drain = ready


class ToyActor:
    """Its update is a sum over the sequences of all data-parallel ranks, exact in whatever order they are added."""

    def __init__(self, ranks=ALONE):
        self.weight = 1.0
        self.ranks = ranks
        self.seen: list[tuple[str, ...]] = []

    def logprobs(self, sequences):
        return [SimpleNamespace(logprobs=tuple(-0.1 * (i + 1) for i in s.response_ids)) for s in sequences]

    def update(self, sequences, loss):
        self.seen.append(tuple(s.name for s in sequences))
        parts = [(s.advantage * s.weight * sum(s.response_ids), len(s.response_ids)) for s in sequences]
        places, by_rank = self.ranks.places, self.ranks.gather(parts)
        parts = [part for data in range(places.data_size) for part in by_rank[places.learners(data)[0]]]
        self.weight += math.fsum(change for change, _ in parts) / 7
        tokens = sum(count for _, count in parts)
        sums = {"tokens": float(tokens), "entropy": 1.0 * tokens, "ppo_kl": 0.0}
        return SimpleNamespace(loss=self.weight, grad_norm=1.0, sums=sums, tokens=tokens, skipped=False)

    def save(self, folder: Path) -> None:
        (folder / f"weight-{self.ranks.rank}.json").write_text(json.dumps(self.weight))

    def load(self, folder: Path) -> None:
        self.weight = json.loads((folder / "weight-0.json").read_text())


class ToyRole:
    name = "toy"

    def prompt_ids(self, problem: Problem, context) -> tuple[int, ...]:
        return tuple(ord(c) % 10 for c in problem.question + "".join(context.values()))

    def admit(self, text: str, problem: Problem) -> str | None:
        return "ends in nine" if text.endswith("9") else None


class StopAfter:
    """Tells the run to stop at the n-th time that it asks."""

    def __init__(self, asks: int | None = None):
        self.asks, self.seen = asks, 0

    @property
    def requested(self) -> bool:
        self.seen += 1
        return self.asks is not None and self.seen >= self.asks


def toy_config(folder: Path, **run) -> Config:
    return Config.model_validate(
        {
            "run": {"dir": str(folder), "collection_steps": 6, **run},
            "observe": {"console": "none", "tensorboard": False},
            "snapshot": {"every": 2, "keep": 2},
            "problems": {"per_step": 6},
        }
    )


def toy_trainer(
    config: Config,
    stop=None,
    resume: bool = False,
    game: str | Game = "seirenes",
    problems: int = 20,
    ranks=ALONE,
) -> Trainer:
    directory = RunDirectory.of(config)
    if ranks.rank == 0:
        directory.create()
    ranks.gather(None)
    stages = {"R1": (4, 4), "R2": (2, 3), "R3": (4, 4)}
    streams = {"clean": 4, "adversary": 8, "robust": 4}
    overrides = {name: StreamOverrides(flush=flush, capacity=3 * flush) for name, flush in streams.items()}
    if isinstance(game, str):
        game = build_game(game, stages=stages, streams=overrides)
    engine, actor, stop = ToyEngine(), ToyActor(ranks), stop or StopAfter()
    watch = watch_of(ranks, config, directory, game, lambda ids: "".join(map(str, ids)))
    scheduler = RolloutScheduler(
        game,
        {"reasoner": ToyRole(), "adversary": ToyRole()},
        {"shared": engine},
        shared_judge(ToyJudge(), ranks),
        lambda ids: "".join(map(str, ids)),
        run_seed=config.run.seed,
        temperature=1.0,
        top_p=1.0,
        max_prompt_tokens=100,
        clock=watch.clock,
        on_span=watch.rollout_span,
        on_progress=watch.progress,
        should_stop=lambda: any_of_replica(ranks, stop.requested),
    )
    pool = [Problem(f"q{i}", f"question {i}", str(i), meta={"solution": f"1 {i} 2 3"}) for i in range(problems)]
    parts = Parts(
        game=game,
        sampler=ProblemSampler(pool, config.problems.per_step, config.run.seed, config.problems.mastery),
        streams=Streams(game),
        scheduler=scheduler,
        actor=actor,
        engine=engine,
        losses={stream.name: build_loss(stream, config.objective) for stream in game.streams},
        sync=lambda engine, version: engine.load_weights(
            [("weight", torch.tensor(actor.weight, dtype=torch.float64))], version
        ),
        ranks=ranks,
    )
    health = Health(None, directory.logs, 0, None, print)
    trainer = Trainer(config, parts, directory, watch, stop, {"game": {"name": game.name}}, health)
    if resume:
        snapshot = newest_sound_snapshot(directory.snapshots, print)
        trainer.restore(snapshot, read_state(snapshot))
        watch.go_on_after(trainer.cursor.step, trainer.spent)
    watch.begin()
    return trainer
