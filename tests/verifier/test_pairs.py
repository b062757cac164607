r"""The table of pairs: what the judge must say of a gold and an answer, kind by kind, in `pairs.txt`."""

from pathlib import Path
from typing import NamedTuple

import pytest

from megatron_seirenes.verifier.decision import decide
from megatron_seirenes.verifier.options import Options

TABLE = Path(__file__).with_name("pairs.txt")


class Pair(NamedTuple):
    kind: str
    gold: str
    answer: str
    same: bool
    why: str


def read_table(path=TABLE):
    """The pairs of the table, in its order."""
    pairs, kind, why = [], "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            kind, _, why = line[3:].partition(": ")
        elif line.strip() and not line.startswith("#"):
            text, _, own = line.partition("   // ")
            sign = "≡" if " ≡ " in text else "≢"
            gold, _, answer = text.partition(f" {sign} ")
            pairs.append(Pair(kind, gold, answer, sign == "≡", own or why))
    return pairs


def test_the_table_is_large_and_says_each_thing_once():
    pairs = read_table()
    assert len(pairs) >= 300
    assert len({(pair.gold, pair.answer) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("kind", list(dict.fromkeys(pair.kind for pair in read_table())))
def test_every_pair_gets_its_verdict(kind):
    wrong = [
        f"{'refused' if pair.same else 'accepted'} ({decided}): {pair.gold!r} against {pair.answer!r}: {pair.why}"
        for pair in read_table()
        if pair.kind == kind and ((decided := decide(pair.gold, pair.answer, Options())) == "match") != pair.same
    ]
    assert not wrong, "\n".join(wrong)
