"""YAML as plain data with lines: the scalars of YAML 1.2, and everything that is refused."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.config.yaml_reader import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("16_384", 16384),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("+7", 7),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-11-30", "2026-11-30"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("'1e-6'", "1e-6"),
        ("-", [None]),
        ("", None),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    layer = read_yaml(text, "file")
    assert layer.faults == []
    assert layer.data == value
    assert type(layer.data) is type(value)


def test_infinities_are_numbers() -> None:
    data = read_yaml("[.inf, -.Inf, .nan]", "file").data
    assert data[:2] == [math.inf, -math.inf]
    assert math.isnan(data[2])


def test_a_key_given_twice_names_both_lines() -> None:
    layer = read_yaml("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "run.yaml")
    assert layer.faults == ["b.c (run.yaml:5): given twice (first at run.yaml:3)"]
    assert layer.where[("b", "d")] == "run.yaml:4"


def test_every_fault_of_a_text_is_told() -> None:
    layer = read_yaml("a: 1\na: 2\n[x]: 1\nb: !!python/name:os.system x\nc: !thing 3\n", "f")
    assert [line.split(":")[0] + ":" + line.split(":")[1].split(")")[0] for line in layer.faults] == [
        "a (f:2",
        "the document (f:3",
        "b (f:4",
        "c (f:5",
    ]


@pytest.mark.parametrize(
    "text",
    ["a: [1", "a: b: c", "\tx", "a: *missing", "a: &x [*x]", 'a: "\\ud800"', "a: \x07", "a: " + "9" * 5000, "[" * 400],
)
def test_broken_text_is_a_fault_and_nothing_else(text: str) -> None:
    assert len(read_yaml(text, "f").faults) == 1


def test_a_value_that_contains_itself_is_named() -> None:
    assert read_yaml("a: 1\nb: &x {c: [*x]}", "f").faults == ["b.c.0 (f:2): contains itself"]


def test_merge_keys_come_under_the_own_ones() -> None:
    layer = read_yaml("base: &b {x: 1, y: 2}\nown:\n  y: 3\n  <<: *b\n", "f")
    assert layer.faults == []
    assert layer.data["own"] == {"x": 1, "y": 3}
    assert read_yaml("a: {<<: 3}", "f").faults == ["a (f:1): << must name a mapping (an anchor), seen 3"]


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
NAMES = st.from_regex(r"[a-z]{1,5}", fullmatch=True)


@given(
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner), max_leaves=8)
)
def test_reads_what_a_yaml_1_1_writer_wrote_in_json_style(data: object) -> None:
    """Quoted strings and plain numbers mean the same in both versions."""
    text = yaml.safe_dump(data, default_style='"' if isinstance(data, str) else None)
    if not contains_ambiguous_text(data):
        assert read_yaml(text, "f").data == data


def contains_ambiguous_text(data: object) -> bool:
    """Text that YAML 1.1 writes plain although YAML 1.2 reads a number in it (`1e5`, `0o7`)."""
    if isinstance(data, dict):
        return any(contains_ambiguous_text(value) for value in data.values())
    if isinstance(data, list):
        return any(contains_ambiguous_text(value) for value in data)
    return isinstance(data, str) and data[:1] in tuple("0123456789+-.")
