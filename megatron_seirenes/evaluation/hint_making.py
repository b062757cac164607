"""Writing a file of hints: a policy as Adversary, asked about the training questions before any training.

This is how the Seirênes paper makes its static hints (section 5.3): the policy's own, offline, with the same prompt. A
hint that the role's gate refuses, or an empty one, is asked for again; a question that has too few after `attempts`
askings keeps those it has, none perhaps. Answers are kept beside the file, so the same command goes on where it was
stopped. `static_hints` reads the file through `game.hint_file`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError
from megatron_seirenes.evaluation.asking import Policy, Round, answering_stage, ask_for_hints, hinting_stage
from megatron_seirenes.evaluation.identity import policy_digest
from megatron_seirenes.records import Problem
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.trainer.assembly import build_roles, load_problems, open_policy
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_engine, open_judge, open_world
from megatron_seirenes.verifier.protocol import Judge


def make_hints(config: Config, out: Path, per_question: int, attempts: int) -> dict[str, list[str]]:
    """Hints of the configured policy for every training question, written to `out`; also returned, by question id.

    Raises ConfigError unless attempts >= per_question >= 1, DataError.
    """
    if not 1 <= per_question <= attempts:
        raise ConfigError("hints", [f"per-question {per_question}, attempts {attempts}: 1 to attempts is allowed"])
    problems = load_problems(config)
    assets = open_policy(config, RunDirectory.of(config))
    roles = build_roles(config, (answering_stage(config).role, hinting_stage(config).role), assets.chat)
    with ExitStack() as stack:
        world = open_world(config, stack)
        judge = open_judge(config, stack)
        engine = open_engine(config, assets, world, stack)
        policy = Policy(config, roles, engine, assets.chat)
        hints = collect_hints(policy, judge, problems, out, per_question, attempts, policy_digest(assets.folder))
    lines = [json.dumps({"problem_id": key, "hints": found}, ensure_ascii=False) + "\n" for key, found in hints.items()]
    out.write_text("".join(lines), encoding="utf-8")
    return hints


def collect_hints(
    policy: Policy,
    judge: Judge,
    problems: Sequence[Problem],
    out: Path,
    per_question: int,
    attempts: int,
    made_by: str,
) -> dict[str, list[str]]:
    """Usable hints by question id, in the order of `problems`; an asking goes to the questions that still lack some."""
    hints: dict[str, list[str]] = {problem.id: [] for problem in problems}
    out.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(attempts):
        lacking = [problem for problem in problems if len(hints[problem.id]) < per_question]
        if not lacking:
            break
        seed = stable_seed(policy.config.evaluation.seed, "hints", attempt)
        questions = Round("hints", lacking, samples=1, seed=seed)
        answers = out.with_name(f"{out.stem}-attempt-{attempt}.jsonl")
        for problem_id, records in ask_for_hints(policy, judge, questions, answers, {"policy": made_by}).items():
            hints[problem_id] += [record["hint"] for record in records if record["sample"] is not None]
    return hints
