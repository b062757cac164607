"""A thousand broken configurations: exit 2 and the fault named, or accepted; never a traceback.

Two kinds: text that is broken anywhere (bytes lost, doubled, changed), where only the exit code can be known, and sound
configurations with one known fault, whose key the report must name.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_seirenes.cli.main import main
from megatron_seirenes.config.loading import build_config, dump_config

pytestmark = pytest.mark.faults

YAML_CONFIGS = Path(__file__).resolve().parents[2] / "yaml_configs"
SOURCES = sorted(YAML_CONFIGS.glob("*.yaml"))
EXAMPLES = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}

FULL = yaml.safe_load(
    dump_config(
        build_config(
            {
                "model": {"path": "somewhere"},
                "game": {"stages": {"R1": {"samples": 4}}},
                "streams": {"clean": {"flush": 2}},
                "roles": {"adversary": {"gate": "chain_statements"}},
                "problems": {"train": [{"path": "a.jsonl"}, {"task": "chain_arithmetic", "count": 5}]},
                "evaluation": {"benchmarks": {"b": {"problems": {"path": "b.jsonl"}, "samples": 2}}},
            }
        )
    )
)


def leaves(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value that holds no others."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    below = [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    yield from below or [path]


def replaced(content: Any, path: Sequence[str | int], value: Any) -> Any:
    """A copy of the content with one value replaced or added."""
    if not path:
        return value
    copy: Any = dict(content) if isinstance(content, dict) else list(content)
    head, *rest = path
    known = isinstance(copy, list) or head in copy
    copy[head] = replaced(copy[head] if known else {}, rest, value)
    return copy


def run(*arguments: str) -> tuple[int, str]:
    """The exit code of a command run in this process, and what it said on standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(arguments)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None), said.getvalue()
    return 0, said.getvalue()


def check(path: Path, *overrides: str) -> tuple[int, str]:
    code, said = run("config", str(path), *overrides)
    assert code in (0, 2), said
    assert "Traceback" not in said
    assert (code == 2) == bool(said.strip()), said
    return code, said


@st.composite
def broken_text(draw: st.DrawFn) -> bytes:
    content = draw(st.sampled_from(SOURCES)).read_bytes()
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 40))
        kind = draw(st.sampled_from(["cut", "double", "put", "truncate"]))
        if kind == "cut":
            content = content[:place] + content[place + length :]
        elif kind == "double":
            content = content[: place + length] + content[place:]
        elif kind == "put":
            content = content[:place] + draw(st.binary(max_size=12)) + content[place:]
        else:
            content = content[:place]
    return content


@settings(max_examples=450, **EXAMPLES)
@given(content=broken_text())
def test_broken_text(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "broken.yaml"
    path.write_bytes(content)
    check(path)


WRONG = st.one_of(
    st.sampled_from([[], {}, [[]], {"a": {"b": 1}}, -1, -0.5, float("inf"), float("nan"), "", "\x00", 10**30, True]),
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.lists(st.integers(), max_size=3),
)


@settings(max_examples=300, **EXAMPLES)
@given(place=st.sampled_from(sorted(leaves(FULL), key=str)), value=WRONG)
def test_a_value_of_any_type_anywhere(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str | int, ...], value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "typed.yaml"
    path.write_text(yaml.safe_dump(replaced(FULL, place, value), allow_unicode=True), encoding="utf-8")
    code, said = check(path)
    if code == 2 and "fault" in said.splitlines()[0] and all(part.isprintable() for part in map(str, place)):
        assert str(place[-1]) in said or str(place[0]) in said, said


@settings(max_examples=150, **EXAMPLES)
@given(
    place=st.sampled_from(sorted((p for p in leaves(FULL) if len(p) > 1 and isinstance(p[-1], str)), key=str)),
    name=st.from_regex(r"\A[a-z]{1,3}_zz[a-z]{1,5}\Z"),
)
def test_a_key_that_does_not_exist_is_named(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str | int, ...], name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "unknown.yaml"
    path.write_text(yaml.safe_dump(replaced(FULL, (*place[:-1], name), 1)), encoding="utf-8")
    code, said = check(path)
    free = {("roles",), ("streams",), ("game", "stages"), ("evaluation", "benchmarks"), ("problems", "train")}
    if place[:-1] not in free:
        assert code == 2 and name in said, said


@settings(max_examples=200, **EXAMPLES)
@given(override=st.one_of(st.text(max_size=20), st.from_regex(r"\A[a-z_.]{0,20}=.{0,10}\Z")))
def test_overrides(override: str) -> None:
    if override.startswith("-"):
        override = f"x{override}"
    check(YAML_CONFIGS / "base.yaml", override)


HARD_TEXTS = [
    "[" * 100_000,
    "a: " + "{b: " * 5_000,
    "&a [*a, *a]",
    "a: &a [*a]",
    "? " * 3_000,
    "\ufeff",
    "%YAML 9.9\n---\n",
    "---\n---\n",
]


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_texts_that_break_readers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hard.yaml"
    path.write_text(text, encoding="utf-8")
    check(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    assert check(tmp_path)[0] == 2
    assert check(tmp_path / "nowhere.yaml")[0] == 2
    (tmp_path / "device.yaml").symlink_to("device.yaml")
    assert check(tmp_path / "device.yaml")[0] == 2
