"""A training set for one model (paper, Appendix B): pooled, cleaned, measured and balanced over difficulty.

    pool -> exact and near duplicates out -> what benchmarks ask out -> 8 answers a question -> even over buckets

The pool is `problems.train`, the benchmarks those of the configuration. Everything is kept beside the file that is
written: who was removed and why, every answer (an interrupted pass goes on, a second run asks nothing), the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError, DataError, StoppedBySignal
from megatron_seirenes.evaluation.asking import Round, answering_stage, ask
from megatron_seirenes.evaluation.opening import open_for_questions
from megatron_seirenes.evaluation.prepare_report import Preparation, report_json, report_markdown
from megatron_seirenes.problems.buckets import balanced_sample, difficulty_bucket
from megatron_seirenes.problems.duplicates import Removal, exact_duplicates, near_duplicates, overlaps
from megatron_seirenes.problems.readers import read_all, read_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_judge
from megatron_seirenes.trainer.signals import StopListener
from megatron_seirenes.verifier.judge import PooledJudge
from megatron_seirenes.verifier.protocol import Judge


def prepare(config: Config) -> Preparation:
    """Writes `prepare.out` and, beside it, removed.jsonl, answers.jsonl, report.json and report.md.

    Raises ConfigError for missing keys, DataError for unusable questions or too few of them, StoppedBySignal.
    """
    missing = [("problems.train", config.problems.train), ("prepare.out", config.prepare.out)]
    faults = [f"{key}: is missing" for key, value in missing if not value]
    if faults:
        raise ConfigError("prepare", faults)
    out = Path(str(config.prepare.out))
    out.parent.mkdir(parents=True, exist_ok=True)
    pool = read_all(config.problems.train, config.problems.bad_rows)
    kept, removals = clean_pool(config, pool)
    if not kept:
        raise DataError("problems.train: every question was removed; see prepare.near_duplicate, prepare.overlap_words")
    if config.prepare.count is not None and config.prepare.count > len(kept):
        raise DataError(
            f"prepare.count: {config.prepare.count} questions are wanted, {len(kept)} are left to choose from"
        )
    _write_rows(out.with_name("removed.jsonl"), (_removal_row(removal) for removal in removals))
    preparation = choose(config, pool, kept, removals, _right_answers(config, kept, out.with_name("answers.jsonl")))
    _write_rows(out, (_problem_row(preparation, problem) for problem in preparation.chosen))
    out.with_name("report.json").write_text(json.dumps(report_json(preparation), indent=1), encoding="utf-8")
    out.with_name("report.md").write_text(report_markdown(preparation), encoding="utf-8")
    return preparation


def clean_pool(config: Config, pool: Sequence[Problem]) -> tuple[list[Problem], list[Removal]]:
    """What is left of the pool without duplicates and without what the benchmarks ask, and what was removed."""
    settings, bad_rows = config.prepare, config.problems.bad_rows
    benchmarks = {
        name: read_problems(benchmark.problems, bad_rows) for name, benchmark in config.evaluation.benchmarks.items()
    }
    kept, removals = list(pool), []
    with PooledJudge(config.verifier) as judge:
        for look in (
            lambda some: exact_duplicates(some, partial(_same_answer, judge)),
            lambda some: near_duplicates(some, settings.near_duplicate),
            lambda some: overlaps(some, benchmarks, settings.overlap_words),
        ):
            found = look(kept)
            gone = {removal.problem_id for removal in found}
            kept = [problem for problem in kept if problem.id not in gone]
            removals += found
    return kept, removals


def _same_answer(judge: Judge, one: str, other: str) -> bool:
    if one == other:
        return True
    judge.submit("answer", one, f"\\boxed{{{other}}}")
    return dict(judge.drain())["answer"].correct


def choose(
    config: Config,
    pool: Sequence[Problem],
    kept: Sequence[Problem],
    removals: Sequence[Removal],
    right: Mapping[str, int],
) -> Preparation:
    """The balanced choice from the right answers of each question. Pure."""
    settings = config.prepare
    count = len(kept) if settings.count is None else settings.count
    ids = set(balanced_sample(right, settings.rollouts, settings.buckets, count, settings.seed))
    return Preparation(
        pool=tuple(pool),
        removals=tuple(removals),
        right=right,
        rollouts=settings.rollouts,
        buckets=settings.buckets,
        chosen=tuple(problem for problem in kept if problem.id in ids),
    )


def _right_answers(config: Config, problems: Sequence[Problem], path: Path) -> dict[str, int]:
    """How many of `prepare.rollouts` answers are right, by question id; temperature and top-p are the evaluation's."""
    settings, directory = config.prepare, RunDirectory.of(config)
    seed = stable_seed(settings.seed, "prepare")
    asked = Round("prepare", problems, settings.rollouts, seed, max_tokens=settings.max_tokens)
    with ExitStack() as stack:
        stop = stack.enter_context(StopListener())
        judge = open_judge(config, stack)
        policy, made_by = open_for_questions(config, directory, [answering_stage(config).role], stack)
        try:
            answers = ask(policy, judge, asked, path, made_by, should_stop=lambda: stop.requested)
        except CollectionStopped:
            raise StoppedBySignal(
                f"stopped by a signal; answers are kept in {path}; the same command goes on"
            ) from None
    return {question: sum(one["correct"] for one in some) for question, some in answers.items()}


def _problem_row(preparation: Preparation, problem: Problem) -> dict[str, Any]:
    right, rollouts = preparation.right[problem.id], preparation.rollouts
    bucket = difficulty_bucket(right, rollouts, preparation.buckets)
    return {
        "id": problem.id,
        "question": problem.question,
        "answer": problem.answer,
        "provenance": {"source": problem.source, "right": right, "rollouts": rollouts, "bucket": bucket},
    }


def _removal_row(removal: Removal) -> dict[str, Any]:
    return {
        "problem_id": removal.problem_id,
        "reason": removal.reason,
        "other": removal.other,
        "benchmark": removal.benchmark,
    }


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(text.encode("utf-8", "replace"))
