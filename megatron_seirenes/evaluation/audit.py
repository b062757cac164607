"""`seirenes audit`: did retirement retire what is mastered? (paper, Appendix D, Table 3)

Every question that the run retired is answered again, clean, by the run's final policy; and so is every question that a
sampler keyed on clean success alone would have retired, by the same streak, from the same run's records. Answers are
kept under RUN_DIR/audit/: an interrupted audit goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import DataError, StoppedBySignal
from megatron_seirenes.evaluation.asking import Round, answering_stage, ask
from megatron_seirenes.evaluation.attack_strength import read_attack_statistics
from megatron_seirenes.evaluation.audit_results import AuditRow, audit_markdown, audit_row, write_audit
from megatron_seirenes.evaluation.opening import open_for_questions
from megatron_seirenes.observe.records import Record, read_records
from megatron_seirenes.records import Problem
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.trainer.assembly import load_problems
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_judge
from megatron_seirenes.trainer.signals import StopListener
from megatron_seirenes.trainer.snapshot import newest_sound_snapshot, read_state


def audit(run_dir: Path) -> list[AuditRow]:
    """Audits a finished (or stopped) run, prints and writes Table 3, and with it the attack strength of Table 4.

    Raises DataError for a folder without a run, without a policy, or without a retired question; StoppedBySignal.
    """
    directory = RunDirectory(run_dir)
    for path, what in ((directory.config, "configuration"), (directory.policy, "policy; the run has not ended")):
        if not path.exists():
            raise DataError(f"{run_dir}: holds no {path.name}: there is no {what}")
    config = load_config(directory.config, [f"model={{path: {directory.policy}}}"])
    retired = retired_questions(directory)
    clean = clean_success_questions(_records(directory), answering_stage(config).name, config.problems.mastery.streak)
    if not retired and not clean:
        raise DataError(f"{run_dir}: no question was retired, and none would have been by clean success")
    rates = _success(config, directory, [*retired, *(question for question in clean if question not in retired)])
    samples = config.evaluation.audit.samples
    rows = [
        audit_row(name, [rates[question] for question in some], samples)
        for name, some in (("this run", retired), ("clean success alone", clean))
        if some
    ]
    strength = read_attack_statistics(directory.metrics)
    write_audit(rows, strength, directory.path / "audit")
    Console().print(Markdown(audit_markdown(rows, strength)))
    print(f"every answer and the tables: {directory.path / 'audit'}")
    return rows


def retired_questions(directory: RunDirectory) -> list[str]:
    """The ids that the run had retired at its newest snapshot. Raises DataError without one."""
    snapshot = newest_sound_snapshot(directory.snapshots, report=print)
    if snapshot is None:
        raise DataError(f"{directory.snapshots}: holds no complete snapshot, which says what was retired")
    return list(read_state(snapshot)["sampler"]["retired"])


def clean_success_questions(records: Iterable[Record], clean_stage: str, streak: int) -> list[str]:
    """The questions that clean success alone would have retired, in order.

    `records` are a run's rollouts in order of steps. A question is retired after `streak` consecutive askings in which
    all its clean answers were right. The run asks a question no more once it has retired it by its own, stricter
    criterion; its streak of clean success is at least as long by then.
    """
    right: dict[tuple[int, str], bool] = {}
    for record in records:
        if record["stage"] == clean_stage and record["correct"] is not None:
            asking = (record["step"], record["problem_id"])
            right[asking] = right.get(asking, True) and record["correct"]
    streaks: dict[str, int] = {}
    chosen: dict[str, None] = {}
    for (_, question), solved in right.items():
        streaks[question] = streaks.get(question, 0) + 1 if solved else 0
        if streaks[question] >= streak:
            chosen[question] = None
    return list(chosen)


def _records(directory: RunDirectory) -> Iterable[Record]:
    for path in sorted(directory.rollouts.glob("step-*.jsonl.gz")):
        yield from read_records(path)


def _success(config: Config, directory: RunDirectory, questions: Sequence[str]) -> Mapping[str, float]:
    """The share of right clean answers by question id, under the run's final policy."""
    known = {problem.id: problem for problem in load_problems(config)}
    lost = [question for question in questions if question not in known]
    if lost:
        raise DataError(f"problems.train: does not hold {lost[0]}, which the run retired ({len(lost)} are missing)")
    problems: list[Problem] = [known[question] for question in questions]
    samples = config.evaluation.audit.samples
    asked = Round("audit", problems, samples, stable_seed(config.evaluation.seed, "audit"))
    path = directory.path / "audit" / "answers.jsonl"
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
    return {question: sum(one["correct"] for one in some) / samples for question, some in answers.items()}
