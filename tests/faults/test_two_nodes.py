"""Two torchrun agents ("nodes") on the loopback train together: as one does; a killed rank ends all; all goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, phase_reached, start_nodes
from launching import differing, outcome

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

NODES = 2
A_MINUTE = 60.0
GONE = "another rank is gone or does not answer"


def finish(agents: list[Agent]) -> None:
    for agent in agents:
        assert agent.wait() == 0, agent.output()[-4000:]


def process_of_node(agents: list[Agent], node: int) -> int:
    """The rank that a node of one rank runs."""
    (pid,) = agents[node].ranks()
    return pid


def test_two_nodes_train_as_one(world: Path, whole_of_two: dict[str, Any]) -> None:
    run_dir = world / "two-nodes"
    finish(start_nodes(world, run_dir, NODES))
    assert differing(outcome(run_dir), whole_of_two) == []


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_both_nodes_and_both_go_on(world: Path, whole_of_two: dict[str, Any], victim: int) -> None:
    """Each time another phase: the other node says once what happened, and both agents end."""
    run_dir = world / f"node-{victim}-killed"
    for step, phase in enumerate(("rollout", "training adversary", "snapshot"), start=1):
        agents = start_nodes(world, run_dir, NODES)
        phase_reached(agents[0], phase, step)
        said = agents[1 - victim].output().count(GONE)
        ranks = [process_of_node(agents, node) for node in range(NODES)]
        os.kill(ranks[victim], signal.SIGKILL)
        killed = time.monotonic()
        codes = [agent.wait() for agent in agents]
        ended = time.monotonic() - killed
        print(f"{phase}, rank of node {victim} killed: agents ended with {codes} after {ended:.1f} s", flush=True)
        assert codes == [1, 1] and ended < A_MINUTE
        assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
        assert agents[1 - victim].output().count(GONE) == said + 1, agents[1 - victim].output()[-4000:]
    finish(start_nodes(world, run_dir, NODES))
    assert differing(outcome(run_dir), whole_of_two) == []


def test_a_stop_is_agreed_by_both_nodes(world: Path, whole_of_two: dict[str, Any]) -> None:
    """SIGTERM to every agent, as a scheduler sends it; then SIGUSR1 to one rank, of which no agent knows."""
    run_dir = world / "node-stopped"
    for step, phase, agents_told in ((1, "training clean", True), (2, "rollout", False)):
        agents = start_nodes(world, run_dir, NODES)
        phase_reached(agents[0], phase, step)
        told = [agent.popen.pid for agent in agents] if agents_told else [process_of_node(agents, 1)]
        asked = time.monotonic()
        for pid in told:
            os.kill(pid, signal.SIGTERM if agents_told else signal.SIGUSR1)
        codes = [agent.wait() for agent in agents]
        print(
            f"{phase}, {len(told)} told: agents ended with {codes} after {time.monotonic() - asked:.1f} s", flush=True
        )
        assert codes == ([1, 1] if agents_told else [0, 0])
        assert (run_dir / "STOPPED").exists(), agents[0].output()[-4000:]
    finish(start_nodes(world, run_dir, NODES))
    assert not (run_dir / "STOPPED").exists()
    assert differing(outcome(run_dir), whole_of_two) == []
