r"""Speed and error counts of the judge beside math-verify alone.

    python benchmarks/judge.py speed  --minerva minerva-math.jsonl
    python benchmarks/judge.py table  [--list]

`speed` measures easy verdicts a second on one core (integers, decimals, words against each other, submitted and taken
as the scheduler does) and wrong answers to Minerva (each gold against the next row's). `table` judges the pairs of
tests/verifier/pairs.txt by both and counts wrong acceptances and refusals by kind. math-verify is given both sides
boxed (its best use), with its default limit of 5 seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "verifier")]

from math_verify import parse, verify  # noqa: E402
from test_pairs import read_table  # noqa: E402

from megatron_seirenes.config.schema import VerifierSection  # noqa: E402
from megatron_seirenes.verifier.decision import decide  # noqa: E402
from megatron_seirenes.verifier.extraction import last_box  # noqa: E402
from megatron_seirenes.verifier.judge import PooledJudge  # noqa: E402
from megatron_seirenes.verifier.options import Options  # noqa: E402

EASY = 100_000
ALONE_SAMPLE = 60


def math_verify_alone(gold: str, answer: str) -> bool:
    """What math-verify says of two boxed answers; everything it raises, its timeout included, is a refusal."""
    try:
        return verify(parse(rf"\boxed{{{gold}}}"), parse(rf"\boxed{{{answer}}}"))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return False


def judge_itself(gold: str, answer: str) -> bool:
    return decide(gold, answer, Options()) == "match"


def rate(judge: Callable[[str, str], bool], pairs: Sequence[tuple[str, str]]) -> float:
    """Verdicts a CPU second."""
    began = time.process_time()
    for gold, answer in pairs:
        judge(gold, answer)
    return len(pairs) / (time.process_time() - began)


def easy_rate() -> float:
    """Verdicts a CPU second through submit and ready, every answer different, right and wrong ones in turn."""
    responses = [
        (str(number % 977), rf"so \boxed{{{number % 977 + number % 2}.{'0' * (number % 5)}}}") for number in range(EASY)
    ]
    with PooledJudge(VerifierSection()) as judge:
        began = time.process_time()
        taken = 0
        for number, (gold, response) in enumerate(responses):
            judge.submit(str(number), gold, response)
            if number % 64 == 0:
                taken += len(judge.ready())
        taken += len(judge.drain())
        assert taken == EASY
        return EASY / (time.process_time() - began)


def speed(minerva: Path) -> None:
    rows = [json.loads(line) for line in minerva.read_text(encoding="utf-8").splitlines()]
    golds = [last_box(row["solution"]) or "" for row in rows]
    wrong = [(gold, other) for gold, other in zip(golds, golds[1:] + golds[:1], strict=True) if gold != other]
    judge_itself("x+1", "1+x")
    math_verify_alone("x+1", "1+x")
    sample = wrong[:: max(1, len(wrong) // ALONE_SAMPLE)]
    ours, theirs = rate(judge_itself, wrong), rate(math_verify_alone, sample)
    print(f"easy verdicts a second, one core:                 {easy_rate():>10,.0f}")
    print(f"wrong answers to Minerva a second, the judge:     {ours:>10,.0f}   ({len(wrong)} pairs)")
    print(f"wrong answers to Minerva a second, math-verify:   {theirs:>10,.1f}   ({len(sample)} of them)")
    print(f"ratio:                                            {ours / theirs:>10,.0f}")


def table(list_faults: bool) -> None:
    pairs = read_table()
    kinds = list(dict.fromkeys(pair.kind for pair in pairs))
    counts: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        counts[pair.kind, "accept" if pair.same else "refuse"] += 1
        for name, judge in (("alone", math_verify_alone), ("judge", judge_itself)):
            said = judge(pair.gold, pair.answer)
            if said != pair.same:
                counts[pair.kind, f"{name}, wrongly {'accepted' if said else 'refused'}"] += 1
                if list_faults:
                    print(f"# {name} wrongly {'accepts' if said else 'refuses'}: {pair.gold} | {pair.answer}")
    columns = ["accept", "refuse"] + [
        f"{name}, wrongly {fault}" for name in ("alone", "judge") for fault in ("accepted", "refused")
    ]
    print("| kind | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for kind in kinds:
        print(f"| {kind} | " + " | ".join(str(counts[kind, column]) for column in columns) + " |")
    totals = [sum(counts[kind, column] for kind in kinds) for column in columns]
    print(f"| **all {len(pairs)}** | " + " | ".join(f"**{total}**" for total in totals) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("speed").add_argument("--minerva", type=Path, required=True)
    commands.add_parser("table").add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.command == "speed":
        speed(arguments.minerva)
    else:
        table(arguments.list)


if __name__ == "__main__":
    main()
