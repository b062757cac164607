"""Putting files and overrides together."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_seirenes.config.layers import deep_merge, read_layers


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_file_wins_over_what_it_extends_and_the_command_line_over_both(write) -> None:
    write("deep/base.yaml", "run: {name: base, seed: 1}\noptimizer: {lr: 1e-6}\n")
    write("deep/middle.yaml", "extends: base.yaml\nrun: {name: middle}\n")
    top = write("top.yaml", "extends: deep/middle.yaml\noptimizer: {beta1: 0.5}\n")
    layer = read_layers(top, ["run.seed=7", "parallel.tensor=2"])
    assert layer.faults == []
    assert layer.data == {
        "run": {"name": "middle", "seed": 7},
        "optimizer": {"lr": 1e-6, "beta1": 0.5},
        "parallel": {"tensor": 2},
    }
    assert layer.where[("run", "name")] == "middle.yaml:2"
    assert layer.where[("run", "seed")] == "command line"


def test_several_bases_merge_in_order_and_a_diamond_is_no_circle(write) -> None:
    write("root.yaml", "run: {name: root, seed: 3}\n")
    write("a.yaml", "extends: root.yaml\nrun: {name: a}\n")
    write("b.yaml", "extends: root.yaml\nmodel: {path: b}\n")
    layer = read_layers(write("c.yaml", "extends: [a.yaml, b.yaml]\n"), [])
    assert layer.faults == []
    assert layer.data == {"run": {"name": "root", "seed": 3}, "model": {"path": "b"}}


def test_circles_and_missing_files_are_named(write) -> None:
    write("a.yaml", "extends: b.yaml\n")
    b = write("b.yaml", "run: {seed: 2}\nextends: [a.yaml, gone.yaml]\n")
    faults = read_layers(b, []).faults
    assert faults[0] == "extends (a.yaml:1): files extend one another in a circle: b.yaml -> a.yaml -> b.yaml"
    assert faults[1].endswith("gone.yaml: no such file")
    assert len(faults) == 2


@pytest.mark.parametrize("value", ["3", "[a, 3]", "{a: b}", "[[]]", "''"])
def test_extends_must_name_files(write, value: str) -> None:
    faults = read_layers(write("a.yaml", f"extends: {value}\n"), []).faults
    assert len(faults) == 1
    assert "extends (a.yaml:1): must be a file name" in faults[0] or "cannot be read" in faults[0]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_unreadable_files_are_faults(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.yaml"
    path.mkdir() if content is None else path.write_bytes(content)
    assert len(read_layers(path, []).faults) == 1


@pytest.mark.parametrize("override", ["x", "=1", "a..b=1", ".a=1", "a.=1", "extends=b.yaml", "a" + ".a" * 5000 + "=1"])
def test_malformed_overrides_are_faults(write, override: str) -> None:
    layer = read_layers(write("a.yaml", ""), [override])
    assert len(layer.faults) == 1
    assert layer.data == {}


def test_overrides_hold_yaml_and_merge_mappings(write) -> None:
    path = write("a.yaml", "game: {stages: {R1: {samples: 2}, R2: {samples: 3}}}\n")
    overrides = ["game.stages={R1: {max_tokens: 9}}", "optimizer.lr=1e-4", "run.dir=null", "run.name='a=b'", "model="]
    layer = read_layers(path, overrides)
    assert layer.faults == []
    assert layer.data["game"]["stages"] == {"R1": {"samples": 2, "max_tokens": 9}, "R2": {"samples": 3}}
    assert layer.data["optimizer"] == {"lr": 1e-4}
    assert layer.data["run"] == {"dir": None, "name": "a=b"}
    assert "model" not in layer.data


def test_the_long_form_of_the_model(write) -> None:
    write("base.yaml", "model: {dtype: float32, path: a}\n")
    layer = read_layers(write("a.yaml", "extends: base.yaml\npolicies:\n  shared:\n    path: b\n"), [])
    assert layer.faults == []
    assert layer.data == {"model": {"dtype": "float32", "path": "b"}}
    assert layer.where[("model", "path")] == "a.yaml:4"
    both = read_layers(write("b.yaml", "model: {path: a}\npolicies: {shared: {path: b}}\n"), [])
    assert both.faults == ["policies.shared (b.yaml:2): is the long form of model, which is given too: keep one"]
    other = read_layers(write("c.yaml", "policies: {share: {}, adversary: {}}\n"), [])
    assert other.faults == [
        "policies.share (c.yaml:1): this release trains one policy, named shared; did you mean shared?",
        "policies.adversary (c.yaml:1): this release trains one policy, named shared",
    ]


def test_merging_changes_neither_side() -> None:
    base, over = {"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2]}
    assert deep_merge(base, over) == {"a": {"b": 1, "d": 2}, "c": [2]}
    assert base == {"a": {"b": 1}, "c": [1]}
    assert over == {"a": {"d": 2}, "c": [2]}
