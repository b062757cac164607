"""A configuration as a whole: every fault in one report, and the way back to YAML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from megatron_seirenes.config.faults import all_keys
from megatron_seirenes.config.loading import build_config, dump_config, load_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError
from megatron_seirenes.games.registry import default_game

YAML_CONFIGS = Path(__file__).resolve().parents[2] / "yaml_configs"


def faults_of(data: dict) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        build_config(data)
    return caught.value.faults


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"paralel": {}}, "paralel: unknown key in the top level; did you mean parallel?"),
        ({"parallel": {"tensro": 2}}, "parallel.tensro: unknown key in parallel; did you mean tensor?"),
        ({"optimizer": {"clip_low": 1}}, "optimizer.clip_low: unknown key in optimizer; there is objective.clip_low"),
        ({"snapshot": {"xyz": 1}}, "snapshot.xyz: unknown key in snapshot; known: every, keep, keep_every, on_failure"),
        ({"parallel": {"tensor": "two"}}, "parallel.tensor: must be an integer; seen 'two' (a string)"),
        ({"parallel": {"tensor": 2.0}}, "parallel.tensor: must be an integer; seen 2.0 (a number)"),
        ({"parallel": {"tensor": True}}, "parallel.tensor: must be an integer; seen true (a truth value)"),
        ({"parallel": {"tensor": None}}, "parallel.tensor: must be an integer; seen null (nothing)"),
        ({"parallel": 3}, "parallel: must be a section (a mapping of keys); seen 3 (an integer)"),
        ({"streams": []}, "streams: must be a mapping; seen [] (a list)"),
        ({"optimizer": {"lr": "1e-6"}}, "optimizer.lr: must be a number; seen '1e-6' (a string)"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr: must be a finite number; seen inf (a number)"),
        ({"optimizer": {"beta1": 1}}, "optimizer.beta1: must be less than 1; seen 1 (an integer)"),
        ({"run": {"seed": -1}}, "run.seed: must be greater than or equal to 0; seen -1 (an integer)"),
        ({"model": {"dtype": "fp32"}}, "model.dtype: must be 'bfloat16' or 'float32'; seen 'fp32' (a string)"),
        (
            {"run": {"name": "a b"}},
            "run.name: must consist of letters, digits, dots, dashes and underscores; seen 'a b' (a string)",
        ),
        (
            {"problems": {"train": [{"path": "a", "options": {"k": [1]}}]}},
            "problems.train.0.options.k: must be an integer or a number or a string or a boolean; seen [1] (a list)",
        ),
        (
            {"problems": {"train": [{"pth": "a"}]}},
            "problems.train.0.pth: unknown key in problems.train.0; did you mean path?",
        ),
        (
            {"evaluation": {"benchmarks": {"x": {"samples": 2}}}},
            "evaluation.benchmarks.x: a key is missing: problems",
        ),
    ],
)
def test_one_fault_is_one_line_that_says_what_is_allowed(data: dict, fault: str) -> None:
    assert faults_of(data) == (fault,)


def test_a_faulty_key_does_not_hide_the_rules_that_do_not_need_it() -> None:
    faults = faults_of(
        {
            "model": {"dtype": "fp4", "new": {"family": "qwen3_moe", "rope_theta": -1}},
            "parallel": {"pipeline": 2, "virtual_pipeline": "x", "sequence_parallel": True},
        }
    )
    assert sorted(line.partition(":")[0] for line in faults) == [
        "model.dtype",
        "model.new",
        "model.new.rope_theta",
        "parallel.sequence_parallel",
        "parallel.virtual_pipeline",
    ]


def test_a_faulty_key_has_no_second_fault() -> None:
    """Neither from a rule that needs it, nor because a section is incomplete without it."""
    assert len(faults_of({"streams": {"clean": {"flush": "big", "capacity": 3}}})) == 1
    benchmark = {"problems": {"path": "p"}, "distractors": {"kind": "files"}}
    assert faults_of({"evaluation": {"benchmarks": {"b": benchmark}}}) == (
        "evaluation.benchmarks.b.distractors.kind: must be 'file', 'column', 'task', 'policy' or 'endpoint'; "
        "seen 'files' (a string)",
    )


def test_long_values_and_line_breaks_stay_on_one_short_line() -> None:
    for line in faults_of({"run": {"seed": "x" * 500}, "a\nb": 1}):
        assert "\n" not in line
        assert len(line) < 250


def test_the_same_file_serves_every_game() -> None:
    seirenes = load_config(YAML_CONFIGS / "base.yaml", ["streams.adversary.flush=9", "roles.adversary.gate=x"])
    grpo = load_config(YAML_CONFIGS / "base.yaml", ["game.name=grpo", "streams.adversary.flush=9"])
    assert seirenes.streams["adversary"].flush == grpo.streams["adversary"].flush == 9


@pytest.mark.parametrize("path", sorted(YAML_CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_of_ours_loads_and_comes_back(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    copy = tmp_path / "config.yaml"
    copy.write_text(dump_config(config), encoding="utf-8")
    assert load_config(copy) == config


def test_base_writes_out_the_defaults_of_schema_and_game() -> None:
    """One source of truth: base.yaml only shows what would hold without it."""
    base = load_config(YAML_CONFIGS / "base.yaml")
    game = default_game("seirenes")
    assert {name: (s.samples, s.max_tokens) for name, s in base.game.stages.items()} == {
        stage.name: (stage.samples, stage.max_tokens) for stage in game.stages
    }
    assert {name: (s.flush, s.max_lag, s.max_policy_lag) for name, s in base.streams.items()} == {
        stream.name: (stream.flush, stream.max_lag, stream.max_policy_lag) for stream in game.streams
    }
    without = base.model_copy(update={"game": Config().game, "streams": {}})
    assert without == Config()


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.floats(1e-12, 1, exclude_min=True))
@example("\x85", 1.0)
@example("\u2028a", 1.0)
@settings(max_examples=60)
def test_any_text_and_number_survive_the_way_through_yaml(tmp_path_factory, text: str, rate: float) -> None:
    config = build_config({"warmup": {"out": text}, "optimizer": {"lr": rate}, "run": {"dir": text}})
    path = tmp_path_factory.mktemp("round") / "c.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path) == config


SCALARS = st.sampled_from(
    ["1", "-1", "0", "1e400", "1e-6", "true", "null", "x", "[]", "{}", "[1, a]", "{a: b}", ".nan", '"\\0"', "&a [*a]"]
)
KEYS = st.sampled_from([*all_keys(Config), "policies.shared.path", "extends", "nope", "game.stages.R9.samples"]).map(
    lambda key: key.replace("{name}", "clean").replace("[]", "")
)




def as_section(key: str, value: str) -> str:
    section, _, rest = key.partition(".")
    return f"{section}: {{{rest or 'x'}: {value}}}"


SECTIONS = st.lists(st.builds(as_section, KEYS, SCALARS), max_size=6).map("\n".join)


@given(st.text(max_size=200) | SECTIONS, st.lists(st.tuples(KEYS, SCALARS), max_size=8))
@settings(max_examples=150)
def test_malformed_configurations_raise_nothing_but_config_error(tmp_path_factory, text, overrides) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "c.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        config = load_config(path, [f"{key}={value}" for key, value in overrides])
    except ConfigError as error:
        told = error.faults
    else:
        assert isinstance(config, Config)
        return
    assert told
    assert all(fault and "\n" not in fault for fault in told)


def test_reading_a_configuration_imports_nothing_heavy() -> None:
    code = "import sys, megatron_seirenes.config.loading; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "megatron", "vllm", "transformers"}.isdisjoint(loaded)
