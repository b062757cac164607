"""A game whose stages and streams do not fit together is refused."""

from __future__ import annotations

import dataclasses

import pytest

from megatron_seirenes.games.game import check_game
from megatron_seirenes.games.registry import default_game


def test_faults_of_a_game_are_refused():
    game = default_game("seirenes")
    r1, r2, r3 = game.stages
    clean = game.stream("clean")
    for stages, streams, message in [
        ((r1, r1), game.streams, "stage R1 is named twice"),
        ((r1, r3, r2), game.streams, "R3 has parent R2, which does not stand before it"),
        (game.stages, (clean, clean), "stream clean is named twice"),
        ((r1,), game.streams, r"stream adversary needs stages that do not exist: \['R2', 'R3'\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_game(dataclasses.replace(game, stages=stages, streams=streams))
