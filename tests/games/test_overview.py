"""The table of docs/games/overview.md says what the files of yaml_configs/games/ do: each row is made from its file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.games.game import Game, Stage, Stream
from megatron_seirenes.trainer.assembly import build_run_game

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "games" / "overview.md"
FILES = {path.stem: path for path in sorted((ROOT / "yaml_configs" / "games").glob("*.yaml"))}
FILES["seirenes"] = ROOT / "yaml_configs" / "base.yaml"
ROW = re.compile(r"^\| \[`(?P<method>\w+)`\]\((?P<page>\w+\.md)(?:#\w+)?\) \| (?P<cells>.+) \|$", re.MULTILINE)


def asked(stage: Stage) -> str:
    """A stage with its samples, and of what each asking hangs."""
    if stage.parent is not None:
        return f"{stage.name} {stage.samples} × {stage.parent}"
    if stage.when is not None:
        return f"{stage.name} {stage.samples} where R1 fails"
    return f"{stage.name} {stage.samples}{' × given hint' if stage.judged and stage.expand else ''}"


def cadence(stream: Stream) -> str:
    """What a step may do for a stream beyond one batch of questions and one update on groups that may have waited."""
    said = [f"{stream.max_rounds} rounds"] if stream.max_rounds > 1 else []
    said += [f"{stream.max_flushes} updates"] if stream.max_flushes > 1 else []
    said += ["nothing waits"] if stream.max_lag == 0 else []
    return ", ".join(said)


def settings(config: Config) -> str:
    objective = config.objective
    said = [objective.aggregation, objective.advantage, f"{objective.clip_low:g}, {objective.clip_high:g}"]
    said += ["ratio of sequences"] if objective.ratio == "sequence" else []
    said += [f"KL {objective.reference_kl:g} ({objective.kl_estimator})"] if objective.reference_kl else []
    said += [f"overlong {objective.overlong_penalty:g}"] if objective.overlong_penalty else []
    return " · ".join(said)


def cells_of(config: Config, game: Game) -> str:
    """The row of a method, but for its name."""
    cells = [
        f"`{game.name}`",
        ", ".join(map(asked, game.stages)),
        ", ".join(f"{stream.name} ({stream.trains_on})" for stream in game.streams),
        ", ".join(stream.objective for stream in game.streams),
        settings(config),
        "; ".join(filter(None, map(cadence, game.streams))) or "–",
    ]
    return " | ".join(cells)


@pytest.fixture
def hint_file(tmp_path: Path) -> Path:
    path = tmp_path / "hints.jsonl"
    path.write_text(json.dumps({"problem_id": "q", "hint": "so it is 3"}) + "\n")
    return path


def test_every_method_has_its_row(hint_file: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    said = {row["method"]: row["cells"] for row in ROW.finditer(text)}
    done = {}
    for method, path in FILES.items():
        config = load_config(path, [f"game.hint_file={hint_file}"])
        done[method] = cells_of(config, build_run_game(config))
    expected = "\n".join(f"{method}: | {cells} |" for method, cells in done.items())
    assert said == done, f"docs/games/overview.md; the rows are\n{expected}"
    for row in ROW.finditer(text):
        assert row["method"] in (PAGE.parent / row["page"]).read_text(encoding="utf-8"), row["page"]
