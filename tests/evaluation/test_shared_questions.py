"""Benchmarks on several ranks (threads over the scripted engine): numbers and file of one rank, each asked its part."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_policy import CHAT, BoxJudge, PlainRole, SeededEngine, draws_right
from toy_ranks import ThreadRanks, run_ranks

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import DataError, SeirenesError
from megatron_seirenes.evaluation.benchmarks import Evaluator
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.trainer.ranks import ALONE, Places, Ranks, any_of_replica

QUESTIONS, SAMPLES = 7, 4
LAYOUTS = {
    "two replicas": (Places(1, (0, 1)), [3, 4]),
    "one replica of two ranks": (Places(2, (0, 0)), [7, 7]),
    "two replicas of two ranks": (Places(2, (0, 0, 1, 1)), [3, 3, 4, 4]),
    "more replicas than questions": (Places(1, tuple(range(9))), [0, 1, 1, 1, 0, 1, 1, 1, 1]),
}


def settings(folder: Path, longest: int = 1) -> Config:
    lines = [f'{{"id": {n}, "question": "{n}{" " * (longest if n == 5 else 1)}?", "answer": "1"}}\n' for n in range(7)]
    (folder / "q.jsonl").write_text("".join(lines))
    benchmarks = {
        "clean": {"problems": {"path": str(folder / "q.jsonl")}, "samples": SAMPLES},
        "own": {"problems": {"path": str(folder / "q.jsonl")}, "clean": "clean", "distractors": {"kind": "policy"}},
    }
    return Config.model_validate({"evaluation": {"benchmarks": benchmarks, "suites": {"both": ["clean", "own"]}}})


def evaluated(config: Config, folder: Path, ranks: Ranks, stopped: int | None = None) -> tuple:
    """Results and the number of answers that this rank's engine was asked to the first benchmark."""
    engine = SeededEngine(draws_right(0.5))
    roles = {"reasoner": PlainRole(), "adversary": PlainRole()}

    def should_stop() -> bool:
        return any_of_replica(ranks, ranks.rank == stopped and len(engine.waiting) <= 4)

    evaluator = Evaluator(config, roles, engine, BoxJudge(), CHAT, should_stop=should_stop, ranks=ranks)
    results = evaluator.run_all(folder / f"rank-{ranks.rank}")
    return results, sum(request.sampling.max_tokens == 16384 for request in engine.asked)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_number_of_ranks_finds_and_writes_what_one_does(tmp_path, layout):
    places, shares = LAYOUTS[layout]
    config = settings(tmp_path)
    whole, _ = evaluated(config, tmp_path / "one", ALONE)
    found = run_ranks(places, lambda ranks: evaluated(config, tmp_path / "several", ranks))
    assert [results for results, _ in found] == [whole] * places.size
    assert [asked for _, asked in found] == [(SAMPLES + 1) * share for share in shares]
    for path in sorted((tmp_path / "one" / "rank-0").iterdir()):
        assert (tmp_path / "several" / "rank-0" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_stop_of_one_replica_stops_all_at_the_same_benchmark(tmp_path):
    config = settings(tmp_path)

    def program(ranks: ThreadRanks) -> str:
        with pytest.raises(CollectionStopped):
            evaluated(config, tmp_path / "out", ranks, stopped=2)
        return ranks.gather("still in step")[ranks.rank]

    assert run_ranks(Places(2, (0, 0, 1, 1)), program) == ["still in step"] * 4


def test_an_error_of_one_replica_is_told_on_all(tmp_path):
    config = settings(tmp_path, longest=5000)
    first, second = run_ranks(Places(1, (0, 1)), lambda ranks: evaluated(config, tmp_path / "out", ranks))
    assert isinstance(second, DataError) and "problem q/5: its answer prompt has" in str(second)
    assert isinstance(first, SeirenesError) and str(second) in str(first)
