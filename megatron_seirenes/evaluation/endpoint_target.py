"""An endpoint as a Reasoner: it is asked what the policy's Reasoner would be asked, and judged alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from megatron_seirenes.config.schema import Config, RoleSettings
from megatron_seirenes.evaluation.answers import AnswerFile, Record
from megatron_seirenes.evaluation.asking import answering_stage
from megatron_seirenes.evaluation.endpoint import Endpoint, Question, Reply
from megatron_seirenes.records import Problem, Verdict
from megatron_seirenes.roles.prompt import load_prompt
from megatron_seirenes.verifier.protocol import Judge


def answers_of_endpoint(
    config: Config,
    endpoint: Endpoint,
    judge: Judge,
    problems: Sequence[Problem],
    hints: Mapping[str, str] | None,
    path: Path,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, list[Record]]:
    """The endpoint's answers by question id, judged and written to `path`; `evaluation.attack.samples` a question.

    Raises as `Endpoint.answer` does.
    """
    role, samples = answering_stage(config).role, config.evaluation.attack.samples
    prompt = load_prompt(config.roles.get(role, RoleSettings()).prompt or role)
    contexts = [{} if hints is None else {"hint": hints[problem.id]} for problem in problems]
    messages = [tuple(prompt.messages(p.question, context)) for p, context in zip(problems, contexts, strict=True)]
    questions = [Question(conversation, sample) for conversation in messages for sample in range(samples)]
    replies = endpoint.answer(questions, should_stop)
    asked = [(problem, sample) for problem in problems for sample in range(samples)]
    for index, ((problem, _), reply) in enumerate(zip(asked, replies, strict=True)):
        judge.submit(str(index), problem.answer, reply.text)
    verdicts = dict(judge.drain())
    file = AnswerFile(path, samples)
    for first in range(0, len(asked), samples):
        problem = asked[first][0]
        some = range(first, first + samples)
        records = [_record(problem, hints, asked[i][1], replies[i], verdicts[str(i)]) for i in some]
        file.add(problem.id, records)
    return file.finish(problem.id for problem in problems)


def _record(problem: Problem, hints: Mapping[str, str] | None, sample: int, reply: Reply, verdict: Verdict) -> Record:
    return {
        "problem_id": problem.id,
        "question": problem.question,
        "gold": problem.answer,
        "hint": None if hints is None else hints[problem.id],
        "sample": sample,
        "response": reply.text,
        "response_tokens": reply.completion_tokens,
        "extracted": verdict.extracted,
        "correct": verdict.correct,
        "reason": verdict.reason,
        "truncated": reply.finish_reason == "length",
    }
