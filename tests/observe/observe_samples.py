"""Games, bundles and run directories made by hand, for the tests of this room."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from megatron_seirenes.games.game import Game, Stage, Stream, check_game
from megatron_seirenes.observe.bundle_index import encode_bundle, write_bundles
from megatron_seirenes.observe.records import rollout_records
from megatron_seirenes.observe.timeline import Span, Timeline, TimelineFile
from megatron_seirenes.observe.writer import MetricsWriter
from megatron_seirenes.records import Birth, Bundle, Group, Problem, Request, Rollout, Sampling, Verdict

STREAMS = ("clean", "adversary", "robust")
HOSTILE = (
    "<script>window.broken = 1</script>",
    "</script><script>window.broken = 2</script>",
    '<img src=x onerror="window.broken = 3">',
    "<!--<script> `backtick` ${brace} & \u2028 end",
)


def three_stage_game() -> Game:
    """The shape of Seirênes under other names, so that nothing can rest on R1, R2, R3."""
    stages = (
        Stage("plain", "reasoner", samples=2, max_tokens=8),
        Stage("lure", "adversary", samples=2, max_tokens=8, judged=False),
        Stage("tempted", "reasoner", samples=2, max_tokens=8, parent="lure"),
    )
    trained = zip(STREAMS, ("plain", "lure", "tempted"), strict=True)
    streams = tuple(
        Stream(name, stage, (stage,), "clipped", flush=2, capacity=8, max_lag=3, max_policy_lag=12)
        for name, stage in trained
    )
    return check_game(Game("three", stages, streams, lambda bundle, birth: {}, lambda bundle: None, "plain", "tempted"))


def one_stage_game() -> Game:
    stream = Stream("clean", "plain", ("plain",), "clipped", flush=2, capacity=8, max_lag=3, max_policy_lag=12)
    stage = Stage("plain", "reasoner", samples=2, max_tokens=8)
    return check_game(Game("one", (stage,), (stream,), lambda bundle, birth: {}, lambda bundle: None, "plain"))


def rollout(
    problem: str,
    stage: str,
    path: tuple[int, ...],
    length: int = 3,
    parent: Rollout | None = None,
    text: str = "text",
    finish: str = "stop",
    given: bool = False,
) -> Rollout:
    name = f"{problem}/{stage}/{'.'.join(map(str, path))}"
    request = Request(
        id=name,
        problem_id=problem,
        stage=stage,
        path=path,
        role="reasoner",
        policy="shared",
        prompt_ids=(1, *path[:-1]),
        sampling=Sampling(8),
        seed=0,
        parent=None if parent is None else parent.id,
        given_ids=(5,) * length if given else None,
    )
    return Rollout(request, (5,) * length, (-0.1,) * length, finish, 0, text)  # type: ignore[arg-type]


def verdict(correct: bool, reason: str = "", seconds: float = 0.5) -> Verdict:
    reason = reason or ("match" if correct else "mismatch")
    return Verdict(correct, "7" if reason in ("match", "mismatch") else None, reason, seconds)  # type: ignore[arg-type]


def bundle(
    problem: str,
    clean: Sequence[bool],
    hinted: Mapping[str, Sequence[bool]] | None = None,
    refused: Sequence[str] = (),
    step: int = 1,
    question: str = "What is 3 + 4?",
    answer_text: str = "it is \\boxed{7}",
) -> Bundle:
    """One question: marks of its clean answers, and for each hint text the marks of the answers under it."""
    plain = tuple(rollout(problem, "plain", (i,), length=i + 1, text=answer_text) for i in range(len(clean)))
    verdicts = {one.id: verdict(mark) for one, mark in zip(plain, clean, strict=True)}
    lures, tempted, gate = [], [], {}
    for k, (text, marks) in enumerate((hinted or {}).items()):
        lure = rollout(problem, "lure", (k,), text=text)
        lures.append(lure)
        if text in refused:
            gate[lure.id] = "not about the question"
            continue
        for j, mark in enumerate(marks):
            one = rollout(problem, "tempted", (k, j), length=4, parent=lure, text=answer_text, finish="length")
            tempted.append(one)
            verdicts[one.id] = verdict(mark)
    rollouts = {"plain": plain, "lure": tuple(lures), "tempted": tuple(tempted)} if hinted else {"plain": plain}
    return Bundle(Problem(problem, question, "7"), step, rollouts, verdicts, gate)


def groups_of(one: Bundle) -> dict[str, list[Group]]:
    """One clean group and one adversary group a hint; the tempted answers stay uncredited."""
    birth = Birth(one.step, 0, {})
    plain = one.of_stage("plain")
    rewards = tuple(float(one.verdicts[item.id].correct) for item in plain)
    clean = Group(f"{one.problem.id}/plain", one.problem.id, "clean", "plain", plain, rewards, rewards, True, birth)
    lures = [
        Group(lure.id, one.problem.id, "adversary", "lure", (lure,), (0.5,), (0.25,), True, birth)
        for lure in one.of_stage("lure")
    ]
    return {"clean": [clean], "adversary": lures}


def metrics_row(step: int, total: int = 40, gain: float = 0.4) -> dict[str, float | int | None]:
    """A believable row of a Seirênes run."""
    clean = 0.5 + gain * step / total
    hinted = clean - 0.12 + 0.1 * math.sin(step / 3)
    row: dict[str, float | int | None] = {
        "step": step,
        "policy_version": 3 * step,
        "success/clean": clean,
        "success/hinted": hinted,
        "attack/delta": clean - hinted,
        "attack/strong": int(clean - hinted > 0.05),
        "hints/distinct_fraction": 0.9,
        "hints/entropy": 3.0,
        "hints/refused_fraction": 0.05,
        "mismatch/logprob_abs_mean": 1e-6,
        "mismatch/logprob_abs_max": 1e-4,
        "mismatch/prob_ratio": 1.000001,
        "mastery/retired": 2 * step,
        "mastery/live_fraction": 1 - step / (2 * total),
        "verifier/judged": 64,
        "verifier/timeouts": 0,
        "verifier/no_answer": 3,
        "verifier/seconds": 1.5,
        "tokens/generated": 10_000 + step,
        "tokens/trained": 4_000,
        "throughput/generated": 1_000.0,
        "throughput/trained": 2_000.0,
        "time/rollout": 4.0,
        "time/judge_wait": 0.5,
        "time/train": 3.0,
        "time/sync": 0.1,
        "time/snapshot": 0.2,
        "time/step": 8.0,
    }
    for index, name in enumerate(STREAMS):
        row |= {
            f"streams/{name}/candidates": 16,
            f"streams/{name}/zero_advantage": 4,
            f"streams/{name}/accepted": 12,
            f"streams/{name}/evicted_stale": step % 3,
            f"streams/{name}/evicted_overflow": 0,
            f"streams/{name}/pending": (step * (index + 2)) % 8,
            f"streams/{name}/updates": 1,
            f"streams/{name}/updates_total": step,
            f"streams/{name}/lag_mean": 0.5,
            f"streams/{name}/lag_max": 1,
            f"streams/{name}/policy_lag_max": 3,
            f"streams/{name}/suspended": 0,
            f"loss/{name}": 0.1,
            f"grad_norm/{name}": 0.5 + index / 10,
            f"ppo_kl/{name}": 1e-4,
            f"reference_kl/{name}": None,
            f"clip_fraction/{name}": None if name == "adversary" else 1e-3,
            f"entropy/{name}": 0.4 + index / 5,
            f"advantage/{name}/mean": 0.0,
            f"advantage/{name}/std": 1.0,
        }
    for stage in ("plain", "lure", "tempted"):
        row |= {f"length/{stage}/mean": 20.0, f"length/{stage}/max": 64, f"truncated/{stage}": 0.02}
    if step % 10 == 0:
        row |= {"evaluation/aime24/avg@8": clean / 2, "evaluation/aime24/avg@8/low": clean / 2 - 0.05}
        row |= {"evaluation/aime24/avg@8/high": clean / 2 + 0.05, "evaluation/aime24/pass@8": clean}
    return row


def make_run(folder: Path, steps: int = 40, gain: float = 0.4, lr: float = 1e-6, torn: bool = True) -> Path:
    """A run directory as a training leaves it, with hostile hints in it and, when `torn`, a last line cut short."""
    folder.mkdir(parents=True)
    config = {"run": {"name": folder.name, "seed": 0}, "optimizer": {"lr": lr}, "game": {"name": "three"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with MetricsWriter(folder / "metrics.jsonl") as writer:
        for step in range(1, steps + 1):
            writer.append(metrics_row(step, steps, gain))
    if torn:
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 999, "success/cl')
    write_timeline(folder, steps=3)
    for step in (1, steps):
        bundles = [
            bundle("p/1", (True, True), {HOSTILE[0]: (False, False), HOSTILE[1]: (True, False)}, step=step),
            bundle("p/2", (True, False), {HOSTILE[2]: (True, True), HOSTILE[3]: (False, False)}, (HOSTILE[2],), step),
            bundle(
                "p/3",
                (False, True),
                {"a kind hint": (True, True)},
                step=step,
                question=HOSTILE[1],
                answer_text=HOSTILE[0] + " \\boxed{7}" + "long " * 3000,
            ),
        ]
        encoded = [encode_bundle(rollout_records(one, groups_of(one), decode)) for one in bundles]
        write_bundles(folder, step, encoded)
    return folder


def write_timeline(folder: Path, steps: int) -> None:
    """Steps of 8 s: collecting 4 s, training 3 s, moving weights 1 s."""
    timeline, file = Timeline(lambda: 0.0), TimelineFile(folder / "timeline.json")
    for at in range(0, 8 * steps, 8):
        for name, start, end in (("rollout", 0, 4), ("scoring", 4, 5), ("training clean", 5, 7), ("sync", 7, 8)):
            timeline.add(name, "phase", at + start, at + end, "trainer")
        lives = [("plain", 0, 2), ("lure", 0, 1), ("lure", 0, 2.5), ("tempted", 1, 2), ("tempted", 2.5, 3)]
        for stage, start, end in lives:
            timeline.add_overlapping("rollout", "rollout", [Span(stage, at + start, at + end, {"stage": stage})])
        for stage, start, end in (("plain", 2, 2.1), ("tempted", 3, 4)):
            timeline.add_overlapping("judging", "judging", [Span(stage, at + start, at + end, {"stage": stage})])
    file.append(timeline.drain())


def decode(ids: Sequence[int]) -> str:
    return " ".join(f"<{token}>" for token in ids)
