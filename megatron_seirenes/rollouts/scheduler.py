"""Walks the stages of a game for a batch of problems and returns one bundle a problem.

The schedule follows from the stages. Whatever has no parent is submitted at once, short stages first in the queue;
the children of a rollout are submitted in the very engine step in which it ended. With unlimited slots a problem then
takes max(T_R1, max_k(T_R2k + T_R3k)) engine steps. `barrier` reproduces the paper instead: a child waits until every
parentless stage of the whole batch has ended, T(R1 || R2) + T(R3). Held children keep the order in which their parents
ended, and because engines serve first come, first served, no child of a parentless stage starts later when streamed
than behind the barrier, however few the slots.

A stage with a condition (`Stage.when`) is a second round: once everything else has ended and every verdict is known, it
is asked of the problems whose bundles meet the condition. An asking of it whose prompt is too long is left out.

Invariants:
  * what is submitted, and when, depends on engine steps only, in the second round also on what the verdicts are: never
    on the judge's speed or on a clock;
  * every submitted request ends as exactly one rollout of exactly one bundle, or the collection raises;
  * when engines return from `stalled_steps` steps without a token although requests run, these are aborted and
    submitted again, the same and in the same order: the step is then repeatable in its questions, not in every bit;
  * a rollout has children only if its role admits it and its text, stripped, is not empty.

Refused: a question whose prompt is too long (DataError; the data is wrong). A hint that makes the prompt of a child too
long is refused like one that the gate refuses, with its reason in `Bundle.refused`, and has no children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from megatron_seirenes.errors import DataError, SeirenesError
from megatron_seirenes.games.game import Game, Stage
from megatron_seirenes.records import Bundle, Problem, Request, Rollout, Verdict
from megatron_seirenes.rollouts.bundles import assemble_bundle
from megatron_seirenes.rollouts.engine import Completion, Engine
from megatron_seirenes.rollouts.progress import JudgingSpan, Progress, RolloutSpan
from megatron_seirenes.rollouts.requests import Drawing, RoleLike, build_requests, queue_order
from megatron_seirenes.rollouts.stall import StallDetector
from megatron_seirenes.verifier.protocol import Judge


class CollectionStopped(Exception):
    """The collection was told to stop; its requests were dropped and nothing of it remains."""


class RolloutScheduler:
    """Collects bundles. `engines` are keyed by policy name, `roles` by role name.

    `decode` turns token ids into text without special tokens. `on_bundle` is given each problem's bundle once, as soon
    as it is complete, verdicts included; when that is may depend on the judge's speed, so it must decide nothing.
    `should_stop` is read between engine steps; ranks that share a replica must give it the same answer at the same
    step. `judge_wait_seconds` is how long the last collection waited for verdicts after generation had ended, by the
    injected clock (0 without one). `regenerations` is how often the last collection was stalled and asked again, at
    most `max_regenerations` times; `on_stall` is told each time.
    """

    def __init__(
        self,
        game: Game,
        roles: Mapping[str, RoleLike],
        engines: Mapping[str, Engine],
        judge: Judge,
        decode: Callable[[Sequence[int]], str],
        *,
        run_seed: int,
        temperature: float,
        top_p: float,
        max_prompt_tokens: int,
        barrier: bool = False,
        clock: Callable[[], float] | None = None,
        on_span: Callable[[RolloutSpan], None] | None = None,
        on_judged: Callable[[JudgingSpan], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_bundle: Callable[[Bundle], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        stalled_steps: int | None = None,
        max_regenerations: int = 0,
        on_stall: Callable[[str], None] | None = None,
    ):
        self.game = game
        self.roles = roles
        self.engines = dict(sorted(engines.items()))
        self.judge = judge
        self.decode = decode
        self.run_seed = run_seed
        self.temperature = temperature
        self.top_p = top_p
        self.max_prompt_tokens = max_prompt_tokens
        self.barrier = barrier
        self.clock = clock
        self.on_span = on_span
        self.on_judged = on_judged
        self.on_progress = on_progress
        self.on_bundle = on_bundle
        self.should_stop = should_stop
        self.stalled_steps = stalled_steps
        self.max_regenerations = max_regenerations
        self.on_stall = on_stall
        self.judge_wait_seconds = 0.0
        self.regenerations = 0

    def collect(self, problems: Sequence[Problem], step: int, live: Sequence[Stage]) -> list[Bundle]:
        """One bundle a problem, in the order of `problems`, with the stages of `live` and all verdicts.

        Raises DataError for a question that is too long, CollectionStopped when `should_stop` says so, SeirenesError
        when generation does not move however often it is asked again, ValueError when two problems share an id.
        """
        if len({problem.id for problem in problems}) != len(problems):
            raise ValueError("two problems of one collection step share an id")
        collection = _Collection(self, problems, step, live)
        collection.start()
        self._finish(collection)
        collection.second_round()
        self._finish(collection)
        return collection.bundles()

    def _finish(self, collection: _Collection) -> None:
        while collection.unfinished:
            if self.should_stop is not None and self.should_stop():
                collection.abandon()
                steps = f"step {collection.drawing.step} was stopped after {collection.engine_steps} engine steps"
                raise CollectionStopped(steps)
            collection.advance()
            collection.ask_again_if_stalled()


@dataclass(frozen=True, slots=True)
class _Pending:
    request: Request
    submit_step: int
    start_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Judging:
    request: Request
    start_seconds: float | None


class _Collection:
    """What one collection step remembers while it runs."""

    def __init__(self, owner: RolloutScheduler, problems: Sequence[Problem], step: int, live: Sequence[Stage]):
        self.owner = owner
        self.problems = {problem.id: problem for problem in problems}
        self.stages = {stage.name: stage for stage in live}
        self.children = {
            stage.name: queue_order([child for child in live if child.parent == stage.name]) for stage in live
        }
        self.drawing = Drawing(owner.run_seed, step, owner.temperature, owner.top_p)
        self.engine_steps = 0
        self.unfinished: dict[str, _Pending] = {}
        self.roots_running = 0
        self.held: list[Request] = []
        self.rollouts: dict[str, list[Rollout]] = {problem.id: [] for problem in problems}
        self.finished = 0
        self.verdicts: dict[str, Verdict] = {}
        self.judging: dict[str, _Judging] = {}  # each rollout that waits for its verdict
        self.owed = dict.fromkeys(self.problems, 0)  # requests and verdicts that a problem's bundle still lacks
        self.refused: dict[str, str] = {}
        self.stall = StallDetector(owner.stalled_steps)
        owner.regenerations = 0
        owner.judge_wait_seconds = 0.0
        self.submitted = 0
        self.tokens = 0

    def start(self) -> None:
        """Submits every stage without parent and condition, short stages first, then in order of problems."""
        if self._conditional():
            self.owed = dict.fromkeys(self.problems, 1)  # the second round, which is decided later
        roots = [stage for stage in self.stages.values() if stage.parent is None and stage.when is None]
        requests = [
            request
            for stage in queue_order(roots)
            for problem in self.problems.values()
            for request in self._build(stage, problem, None)
        ]
        for request in requests:
            if len(request.prompt_ids) > self.owner.max_prompt_tokens:
                raise DataError(
                    f"problem {request.problem_id}: its {request.stage} prompt has {len(request.prompt_ids)} tokens; "
                    f"rollout.max_prompt_tokens allows {self.owner.max_prompt_tokens}"
                )
        self._submit_roots(requests)

    def second_round(self) -> None:
        """Asks the stages with a condition of the problems whose bundles, judged by now, meet it."""
        conditional = self._conditional()
        if not conditional:
            return
        bundles = self.bundles()
        requests = [
            request
            for stage in conditional
            for bundle in bundles
            if stage.when is not None and stage.when(bundle)
            for request in self._build(stage, bundle.problem, None)
        ]
        self._submit_roots([r for r in requests if len(r.prompt_ids) <= self.owner.max_prompt_tokens])
        for problem_id in self.problems:
            self._settle(problem_id)

    def _conditional(self) -> tuple[Stage, ...]:
        return queue_order([stage for stage in self.stages.values() if stage.when is not None])

    def _submit_roots(self, requests: Sequence[Request]) -> None:
        self.roots_running += len(requests)
        for request in requests:
            self.owed[request.problem_id] += 1
        self._submit(requests)

    def advance(self) -> None:
        """One step of every engine that has work, then whatever follows from what ended in it."""
        completions: list[Completion] = []
        for engine in self.owner.engines.values():
            if engine.has_unfinished():
                completions.extend(engine.step())
        self.engine_steps += 1
        for completion in completions:
            self._finish(completion)
        self._submit_held()
        self._hear(self.owner.judge.ready())
        self._report()

    def ask_again_if_stalled(self) -> None:
        """Aborts and submits again whatever runs, when it has not moved. Raises SeirenesError when that was in vain."""
        if not self.unfinished or not self.stall.due(self.engine_steps):
            return
        drawn = self.tokens + sum(engine.drawn_tokens() for engine in self.owner.engines.values())
        if not self.stall.stalled(self.finished, drawn):
            return
        owner, count = self.owner, len(self.unfinished)
        what = f"step {self.drawing.step}: no token in {owner.stalled_steps} engine steps although {count} requests run"
        if owner.regenerations >= owner.max_regenerations:
            raise SeirenesError(f"{what}, after they were asked again {owner.regenerations} times")
        owner.regenerations += 1
        if owner.on_stall is not None:
            owner.on_stall(f"{what}: they are asked again with the same seeds; the step is inexact")
        self._abort()
        for pending in self.unfinished.values():
            owner.engines[pending.request.policy].submit(pending.request)

    def abandon(self) -> None:
        """Drops everything: requests leave the engines, and pending verdicts are waited for and thrown away."""
        self._abort()
        self.owner.judge.drain()

    def _abort(self) -> None:
        for policy, engine in self.owner.engines.items():
            engine.abort([key for key, pending in self.unfinished.items() if pending.request.policy == policy])

    def bundles(self) -> list[Bundle]:
        """Waits for the last verdicts and puts every rollout where it belongs."""
        before = self._now()
        self._hear(self.owner.judge.drain())
        after = self._now()
        self.owner.judge_wait_seconds += 0.0 if before is None or after is None else after - before
        self._report()
        return [self._bundle(problem) for problem in self.problems.values()]

    def _bundle(self, problem: Problem) -> Bundle:
        rollouts, stages = self.rollouts[problem.id], tuple(self.stages)
        return assemble_bundle(problem, self.drawing.step, stages, rollouts, self.verdicts, self.refused)

    def _build(self, stage: Stage, problem: Problem, parent: Rollout | None) -> tuple[Request, ...]:
        return build_requests(self.owner.game, stage, self.owner.roles[stage.role], problem, parent, self.drawing)

    def _submit(self, requests: Sequence[Request]) -> None:
        now = self._now()
        for request in requests:
            self.unfinished[request.id] = _Pending(request, self.engine_steps, now)
            self.owner.engines[request.policy].submit(request)
        self.submitted += len(requests)

    def _submit_held(self) -> None:
        if self.held and not (self.owner.barrier and self.roots_running):
            self._submit(self.held)
            self.held = []

    def _finish(self, completion: Completion) -> None:
        pending = self.unfinished.pop(completion.request_id)
        request = pending.request
        if completion.finish_reason == "abort":
            raise SeirenesError(f"request {request.id}: the engine dropped it without being asked to")
        rollout = Rollout(
            request=request,
            response_ids=completion.response_ids,
            behaviour_logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            policy_version=self.owner.engines[request.policy].policy_version,
            text=self.owner.decode(completion.response_ids).strip(),
        )
        self.rollouts[request.problem_id].append(rollout)
        self.finished += 1
        self.roots_running -= request.parent is None
        self.tokens += 0 if request.given_ids is not None else len(rollout.response_ids)
        self._span(pending, rollout)
        problem = self.problems[request.problem_id]
        if self.stages[request.stage].judged:
            self.judging[rollout.id] = _Judging(request, self._now())
            self.owed[problem.id] += 1
            self.owner.judge.submit(rollout.id, problem.answer, rollout.text)
        followers = self._follow(rollout, problem)
        self.held.extend(followers)
        self.owed[problem.id] += len(followers)
        self._settle(problem.id)

    def _hear(self, verdicts: Iterable[tuple[str, Verdict]]) -> None:
        for key, verdict in verdicts:
            self.verdicts[key] = verdict
            judging = self.judging.pop(key)
            self._judged(judging)
            self._settle(judging.request.problem_id)

    def _judged(self, judging: _Judging) -> None:
        now, request = self._now(), judging.request
        if self.owner.on_judged is not None and now is not None and judging.start_seconds is not None:
            self.owner.on_judged(
                JudgingSpan(request.id, request.problem_id, request.stage, judging.start_seconds, now)
            )

    def _settle(self, problem_id: str) -> None:
        """One request or verdict less is owed to a problem; with the last one its bundle is complete."""
        self.owed[problem_id] -= 1
        if not self.owed[problem_id] and self.owner.on_bundle is not None:
            self.owner.on_bundle(self._bundle(self.problems[problem_id]))

    def _follow(self, rollout: Rollout, problem: Problem) -> list[Request]:
        """The requests of every child stage, or none with the reason in `refused`."""
        if not rollout.text:
            return []
        reason = self.owner.roles[rollout.request.role].admit(rollout.text, problem)
        followers: list[Request] = []
        if not reason:
            for stage in self.children[rollout.request.stage]:
                followers.extend(self._build(stage, problem, rollout))
            reason = too_long_reason(followers, self.owner.max_prompt_tokens)
        if reason:
            self.refused[rollout.id] = reason
            return []
        return followers

    def _span(self, pending: _Pending, rollout: Rollout) -> None:
        if self.owner.on_span is None:
            return
        request = pending.request
        self.owner.on_span(
            RolloutSpan(
                request_id=request.id,
                problem_id=request.problem_id,
                stage=request.stage,
                submit_step=pending.submit_step,
                end_step=self.engine_steps,
                start_seconds=pending.start_seconds,
                end_seconds=self._now(),
                tokens=len(rollout.response_ids),
            )
        )

    def _report(self) -> None:
        if self.owner.on_progress is not None:
            self.owner.on_progress(
                Progress(
                    step=self.drawing.step,
                    engine_steps=self.engine_steps,
                    submitted=self.submitted,
                    finished=self.finished,
                    judged=len(self.verdicts),
                    tokens=self.tokens,
                )
            )

    def _now(self) -> float | None:
        return None if self.owner.clock is None else self.owner.clock()


def too_long_reason(requests: Sequence[Request], max_prompt_tokens: int) -> str | None:
    """Why these requests cannot be asked for their length; None when all fit."""
    longest = max(requests, key=lambda request: len(request.prompt_ids), default=None)
    if longest is None or len(longest.prompt_ids) <= max_prompt_tokens:
        return None
    return f"makes a {longest.stage} prompt of {len(longest.prompt_ids)} tokens, of {max_prompt_tokens} allowed"
