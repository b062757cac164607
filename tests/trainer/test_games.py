"""Every game on the toy world: its stages run, its streams update, a stopped or killed run goes on exactly.

The games are the files of yaml_configs/games/, Seirênes itself, and its options that no file of their own has.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_run import StopAfter, toy_config, toy_trainer

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.errors import ConfigError, DataError, StoppedBySignal
from megatron_seirenes.games.registry import PRESETS, game_names
from megatron_seirenes.observe.metrics import validate_row
from megatron_seirenes.observe.records import read_records
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.records import Problem
from megatron_seirenes.trainer.assembly import build_run_game, check_playable

CONFIGS = Path(__file__).resolve().parents[2] / "yaml_configs"
PRESET_FILES = sorted((CONFIGS / "games").glob("*.yaml"))
NAMES = [path.stem for path in PRESET_FILES]
OPTIONS = {
    "seirenes": [],
    "seirenes, one hint": ["game.stages.R2.samples=1"],
    "seirenes, four hints": ["game.stages.R2.samples=4"],
    "seirenes, misleading hints": ["game.robust_hints=misleading"],
    "seirenes, strongest hint": ["game.robust_hints=strongest"],
    "seirenes, clean off": ["streams.clean.enabled=false"],
    "seirenes, robust off": ["streams.robust.enabled=false"],
    "seirenes, hinted streams off": ["streams.adversary.enabled=false", "streams.robust.enabled=false"],
}
STAGES = {
    "static_hints": {"R1", "R3"},
    "cooperative_hints": {"R1", "R3"},
    "seirenes_memory": {"R1", "R2", "R3", "M3"},
    "seirenes, hinted streams off": {"R1"},
}
"""Where they are not R1, R2 and R3 (Seirênes) or R1 alone."""
TIMES = ("time/", "throughput/", "verifier/seconds")


def game_of(preset: str, folder: Path):
    """The preset's game with toy numbers: flushes of a few groups, a few tokens, a hint file where one is needed."""
    hints = folder / "hints.jsonl"
    hints.parent.mkdir(parents=True, exist_ok=True)
    hints.write_text("".join(json.dumps({"problem_id": f"q{i}", "hints": ["12", f"{i}7"]}) + "\n" for i in range(20)))
    overrides = ["objective.overlong_cache=2"]
    path = next((path for path in PRESET_FILES if path.stem == preset), CONFIGS / "base.yaml")
    plain = load_config(path)
    for stage, samples, tokens in (("R1", 4, 4), ("R2", 2, 3), ("R3", 4, 4)):
        overrides += [f"game.stages.{stage}.samples={samples}", f"game.stages.{stage}.max_tokens={tokens}"]
    for stream, flush in (("clean", 4), ("adversary", 4), ("robust", 4), ("guided", 1)):
        settings = plain.streams.get(stream)
        tight = settings is not None and settings.capacity == settings.flush and settings.flush is not None
        overrides += [f"streams.{stream}.flush={flush}", f"streams.{stream}.capacity={flush if tight else 3 * flush}"]
    if preset == "static_hints":
        overrides.append(f"game.hint_file={hints}")
    return build_run_game(load_config(path, [*overrides, *OPTIONS.get(preset, ())]))


class Killed(BaseException):
    """The end of a process, which nothing of the run may catch."""


class KillAfter(StopAfter):
    """Ends the run at the n-th time that it asks whether to stop, without a word."""

    @property
    def requested(self) -> bool:
        if super().requested:
            raise Killed
        return False


def run(trainer) -> str:
    with trainer.watch:
        return trainer.run()


def outcome(trainer) -> dict:
    rows = read_metrics(trainer.directory.metrics)
    for row in rows:
        validate_row(row)
    return {
        "weight": trainer.parts.actor.weight,
        "rows": [{key: value for key, value in row.items() if not key.startswith(TIMES)} for row in rows],
        "state": {key: trainer.state_dict()[key] for key in ("streams", "sampler", "memory")},
    }


def stages_of(trainer) -> set[str]:
    files = sorted(trainer.directory.rollouts.glob("*.jsonl.gz"))
    return {record["stage"] for path in files for record in read_records(path)}


@pytest.mark.parametrize("name", [*NAMES, *OPTIONS])
def test_it_trains_and_goes_on_exactly_after_a_stop_or_a_kill(tmp_path, name):
    whole = toy_trainer(toy_config(tmp_path / "whole"), game=game_of(name, tmp_path / "whole"))
    run(whole)
    expected = outcome(whole)
    last = expected["rows"][-1]
    for stream in whole.parts.game.streams:
        assert last[f"streams/{stream.name}/updates_total"] > 0, stream.name
    assert whole.parts.actor.weight != 1.0
    assert stages_of(whole) == STAGES.get(name, {"R1", "R2", "R3"} if name.startswith("seirenes") else {"R1"})

    asks = whole.stop.seen
    for number, stop in enumerate(
        [*(StopAfter(asks * part // 4) for part in (1, 2, 3)), *(KillAfter(asks * part // 8) for part in (4, 5, 7))]
    ):
        folder = tmp_path / f"ended-{number}"
        config = toy_config(folder)
        with pytest.raises((StoppedBySignal, Killed)):
            run(toy_trainer(config, stop, game=game_of(name, folder)))
        trainer = toy_trainer(config, resume=True, game=game_of(name, folder))
        run(trainer)
        assert outcome(trainer) == expected


@pytest.mark.parametrize("preset", NAMES)
@pytest.mark.parametrize("base", ["qwen3_4b.yaml", "quickstart.yaml"])
def test_it_can_be_laid_over_a_run(tmp_path, preset, base):
    """The small world's token limits are below the authors' overlong slope, which is a fault that names the key."""
    path = tmp_path / "run.yaml"
    path.write_text(f"extends: [{CONFIGS / base}, {CONFIGS / 'games' / preset}.yaml]\n")
    short = base == "quickstart.yaml" and preset.startswith("dapo")
    config = load_config(path, ["objective.overlong_cache=4"] if short else [])
    assert config.model.new is not None or base == "qwen3_4b.yaml"
    if short:
        with pytest.raises(ConfigError, match=r"objective\.overlong_cache"):
            load_config(path)


def test_presets_and_their_names_agree():
    assert set(PRESETS) == set(NAMES) - set(game_names())
    for preset, game in PRESETS.items():
        path = next(path for path in PRESET_FILES if path.stem == preset)
        assert load_config(path).game.name == game


def test_dapo_asks_until_a_flush_is_full_and_keeps_nothing(tmp_path):
    config = toy_config(tmp_path)
    config = config.model_copy(update={"problems": config.problems.model_copy(update={"per_step": 2})})
    trainer = toy_trainer(config, game=game_of("dapo", tmp_path))
    run(trainer)
    rows = read_metrics(trainer.directory.metrics)
    assert max(row["rollout/rounds"] for row in rows) > 1
    for row in rows:
        assert row["streams/clean/updates"] == 1
        assert row["streams/clean/pending"] == 0
        assert row["streams/clean/lag_max"] == row["streams/clean/policy_lag_max"] == 0
    generated = sum(row["tokens/generated"] for row in rows)
    assert generated == trainer.spent.generated_tokens > sum(row["tokens/trained"] for row in rows)


def test_a_small_pool_ends_the_rounds(tmp_path):
    trainer = toy_trainer(toy_config(tmp_path, collection_steps=2), game=game_of("dapo", tmp_path), problems=3)
    run(trainer)
    assert [row["rollout/rounds"] for row in read_metrics(trainer.directory.metrics)] == [1, 1]


def test_guidance_is_given_where_the_clean_group_failed_only(tmp_path):
    trainer = toy_trainer(toy_config(tmp_path), game=game_of("cooperative_hints", tmp_path))
    run(trainer)
    seen: dict[tuple[int, str], dict[str, list[bool]]] = {}
    for path in sorted(trainer.directory.rollouts.glob("*.jsonl.gz")):
        for record in read_records(path):
            question = seen.setdefault((record["step"], record["problem_id"]), {"R1": [], "R3": []})
            question[record["stage"]].append(record["correct"])
    assert all(bool(question["R3"]) == (not any(question["R1"])) for question in seen.values())
    assert any(question["R3"] for question in seen.values())


def test_a_question_without_a_hint_is_named(tmp_path):
    game = game_of("static_hints", tmp_path)
    problems = [Problem("q1", "?", "1"), Problem("other", "?", "2")]
    with pytest.raises(DataError, match=r"problem other: the file of hints .* \(1 of 2 problems\)"):
        check_playable(game, problems)
