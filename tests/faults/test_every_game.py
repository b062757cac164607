"""Every game of yaml_configs/games/ on the real stack: Megatron-Core and vLLM train the tiny world by it, for real.

Each runs once whole and once killed by SIGKILL in its third step and started again: its stages ask, every stream of it
learns, the weights move, and both runs leave the same bits. The phase in which the kill strikes differs from game to
game; Seirênes itself is killed in every phase by test_kills.py.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml
from launching import Launcher, beat_of, differing, outcome, wait_for
from safetensors.torch import load_file

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.observe.records import read_records
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.trainer.assembly import load_problems

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(1800)]

PRESETS = sorted((Path(__file__).resolve().parents[2] / "yaml_configs" / "games").glob("*.yaml"))
KILLED_IN = ("rollout", "scoring", "training clean", "sync", "snapshot")
SMALL = ["streams.clean.flush=3", "streams.adversary.flush=4", "streams.robust.flush=2", "streams.guided.flush=1"]
OF_ITS_OWN = {
    "dapo": ["streams.clean.capacity=3"],
    "dapo_24": ["streams.clean.capacity=3"],
    "rloo": ["streams.clean.capacity=3"],
    "gspo": ["streams.clean.flush=1"],
    "seirenes_grouped": ["streams.adversary.flush=2"],
    "seirenes_memory": ["game.memory.min_delta=0.1", "problems.train=[{task: chain_arithmetic, count: 7}]"],
}
STAGES = {
    "static_hints": {"R1", "R3"},
    "cooperative_hints": {"R1", "R3"},
    "seirenes_grouped": {"R1", "R2", "R3"},
    "seirenes_memory": {"R1", "R2", "R3", "M3"},
    "seirenes_frozen_adversary": {"R1", "R2", "R3"},
}


def arguments_of(preset: Path, world: Path) -> list[str]:
    """Writes the configuration of the tiny world under a preset; what follows `seirenes train`."""
    path = world / f"game-{preset.stem}.yaml"
    path.write_text(yaml.safe_dump({"extends": ["run.yaml", str(preset)]}), encoding="utf-8")
    overrides = ["objective.overlong_cache=4", *SMALL, *OF_ITS_OWN.get(preset.stem, ())]
    if preset.stem == "static_hints":
        hints = world / "hints.jsonl"
        names = [problem.id for problem in load_problems(load_config(world / "run.yaml"))]
        hints.write_text("".join(json.dumps({"problem_id": name, "hints": ["claim 3"]}) + "\n" for name in names))
        overrides.append(f"game.hint_file={hints}")
    return ["train", str(path), *overrides]


def asked_stages(run_dir: Path) -> set[str]:
    return {record["stage"] for path in (run_dir / "rollouts").glob("*.gz") for record in read_records(path)}


@pytest.mark.parametrize("preset", PRESETS, ids=[path.stem for path in PRESETS])
def test_it_learns_and_goes_on_exactly_after_a_kill(preset: Path, world: Path, launcher: Launcher) -> None:
    arguments = arguments_of(preset, world)
    whole, killed = world / preset.stem, world / f"{preset.stem}-killed"
    launcher.run(*arguments, f"run.dir={whole}")

    last = read_metrics(whole / "metrics.jsonl")[-1]
    updates = {key: value for key, value in last.items() if key.endswith("/updates_total")}
    assert updates and all(updates.values()), updates
    assert asked_stages(whole) == STAGES.get(preset.stem, {"R1"})
    before, after = (load_file(folder / "model.safetensors") for folder in (world / "warm", whole / "policy"))
    assert any(not after[name].equal(tensor) for name, tensor in before.items())

    phase = KILLED_IN[PRESETS.index(preset) % len(KILLED_IN)]
    process = launcher.start(*arguments, f"run.dir={killed}")
    assert wait_for(killed, process, lambda beat: beat.step >= 3 and beat.phase == phase), process.output()[-4000:]
    process.send(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, process.output()[-4000:]
    print(f"{preset.stem}: aimed at {phase} of step 3, struck {beat_of(killed, process.pid)}", flush=True)
    launcher.run(*arguments, f"run.dir={killed}")
    assert differing(outcome(killed), outcome(whole)) == []
