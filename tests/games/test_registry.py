"""Games by name: the paper's numbers by default, and how overrides change them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from bundle_maker import BIRTH, make_bundle

from megatron_seirenes.errors import UsageError
from megatron_seirenes.games.game import live_stages
from megatron_seirenes.games.registry import StreamOverrides, build_game, default_game, game_names


def test_seirenes_has_the_numbers_of_appendix_b():
    game = default_game("seirenes")
    assert [(s.name, s.role, s.parent, s.samples, s.max_tokens, s.judged) for s in game.stages] == [
        ("R1", "reasoner", None, 8, 16_384, True),
        ("R2", "adversary", None, 2, 2_048, False),
        ("R3", "reasoner", "R2", 8, 16_384, True),
    ]
    assert [(s.name, s.trains_on, s.flush, s.capacity, s.max_lag, s.max_policy_lag) for s in game.streams] == [
        ("clean", "R1", 128, 512, 3, 12),
        ("adversary", "R2", 256, 1024, 3, 12),
        ("robust", "R3", 128, 512, 3, 12),
    ]
    assert [(s.objective, s.balance, s.max_flushes) for s in game.streams] == [
        ("clipped", "group", 1),
        ("reinforce", "group", 1),
        ("clipped", "question", 1),
    ]
    assert (game.clean_stage, game.hinted_stage) == ("R1", "R3")


def test_a_stage_runs_when_a_live_stream_needs_it():
    game = default_game("seirenes")

    def live(*suspended):
        return [stage.name for stage in live_stages(game, frozenset(suspended))]

    assert live() == ["R1", "R2", "R3"]
    assert live("clean") == ["R1", "R2", "R3"]
    assert live("adversary", "robust") == ["R1"]
    assert live("clean", "adversary") == ["R2", "R3"]
    assert live("clean", "adversary", "robust") == []


def test_overrides_change_what_they_name_and_ignore_what_the_game_lacks():
    streams = {
        "clean": StreamOverrides(flush=4),
        "adversary": StreamOverrides(flush=6, capacity=7, max_lag=0, max_policy_lag=1, max_flushes=2),
        "robust": StreamOverrides(enabled=False),
        "other": StreamOverrides(flush=1),
    }
    game = build_game("seirenes", stages={"R2": (4, None), "R3": (None, 99), "X": (1, 1)}, streams=streams)
    assert [(stage.samples, stage.max_tokens) for stage in game.stages] == [(8, 16_384), (4, 2_048), (8, 99)]
    clean, adversary = game.streams
    assert (clean.flush, clean.capacity, clean.max_lag) == (4, 16, 3)
    assert (adversary.flush, adversary.capacity, adversary.max_lag) == (6, 7, 0)
    assert (adversary.max_policy_lag, adversary.max_flushes) == (1, 2)
    assert game.hinted_stage == "R3"


def test_grpo_is_one_stage_and_one_stream():
    game = build_game("grpo", stages={"R1": (2, None), "R2": (4, None)})
    assert [stage.name for stage in game.stages] == ["R1"]
    assert [(stream.name, stream.needs) for stream in game.streams] == [("clean", ("R1",))]
    assert game.hinted_stage is None
    (group,) = game.credit(make_bundle([True, False]), BIRTH)["clean"]
    assert group.advantages == pytest.approx([0.70710, -0.70710], abs=1e-4)
    assert game.credit(make_bundle(None), BIRTH) == {"clean": []}


def test_mistakes_name_the_key_and_what_is_allowed():
    with pytest.raises(UsageError, match=r"game\.name: 'chess' is not a game; known games: seirenes, grpo"):
        build_game("chess")
    with pytest.raises(UsageError, match=r"streams\.clean\.capacity: 3 is below streams\.clean\.flush \(4\)"):
        build_game("grpo", streams={"clean": StreamOverrides(flush=4, capacity=3)})
    with pytest.raises(UsageError, match="every stream of game grpo is disabled"):
        build_game("grpo", streams={"clean": StreamOverrides(enabled=False)})


def test_games_are_plain_and_light():
    for name in game_names():
        game = default_game(name)
        assert pickle.loads(pickle.dumps(game)).streams == game.streams
    code = "import sys, megatron_seirenes.games.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
