"""What the pages say exists: links, anchors, files, commands, make targets, configurations and their overrides."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from megatron_seirenes.cli.main import COMMANDS
from megatron_seirenes.config.loading import load_config

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/**/*.md")])
NAMES = [page.relative_to(REPOSITORY).as_posix() for page in PAGES]

FENCE = re.compile(r"^(?P<fence>```|~~~)(?P<language>\w*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FOLDERS = ("yaml_configs", "docs", "tests", "examples", "requirements", "benchmarks", "tools")
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w/?")
COMMAND = re.compile(r"(?:(?<=`)|^\s*(?:\.venv/bin/)?)seirenes (?P<name>[a-z]+)", re.MULTILINE)
MAKE = re.compile(r"(?:(?<=`)|^\s*)make (?P<target>[a-z-]+)", re.MULTILINE)
CONFIGURED = ("config", "warmup", "train", "evaluate")


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    prose = FENCE.sub("", text(page))
    return {slug(heading) for heading in re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE)}


def slug(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def broken_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(FENCE.sub("", text(page))):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


def shell_lines(page: Path) -> Iterator[list[str]]:
    """The commands of a page's shell blocks, split as a shell would; continued lines are joined."""
    for block in FENCE.finditer(text(page)):
        if block["language"] in ("bash", "sh"):
            for line in block["body"].replace("\\\n", " ").splitlines():
                yield shlex.split(line, comments=True)


def configured_calls(page: Path) -> Iterator[tuple[str, list[str]]]:
    """(configuration, overrides) of every shell command that reads a file of yaml_configs/."""
    for words in shell_lines(page):
        for index, word in enumerate(words):
            if word in CONFIGURED and words[index + 1 : index + 2] and words[index + 1].startswith("yaml_configs/"):
                rest = words[index + 2 :]
                yield words[index + 1], [other for other in rest if "=" in other and not other.startswith("-")]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_files_that_are_named_exist(page: Path) -> None:
    named = {match.group() for match in FILE.finditer(text(page))}
    places = (REPOSITORY, REPOSITORY / "megatron_seirenes")
    assert sorted(name for name in named if not any((place / name).exists() for place in places)) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_that_are_named_exist(page: Path) -> None:
    commands = {module.__name__.rpartition(".")[2] for module in COMMANDS}
    assert {match["name"] for match in COMMAND.finditer(text(page))} - commands == set()
    makefile = text(REPOSITORY / "Makefile")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {match["target"] for match in MAKE.finditer(text(page))} - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_configurations_in_commands_are_without_fault(page: Path) -> None:
    for file, overrides in configured_calls(page):
        load_config(REPOSITORY / file, overrides)


def test_every_page_is_in_the_index() -> None:
    index = REPOSITORY / "docs" / "index.md"
    linked = {(index.parent / match["target"]).resolve() for match in LINK.finditer(text(index))}
    assert [name for name, page in zip(NAMES, PAGES, strict=True) if page.is_relative_to(index.parent)
            and page != index and page not in linked] == []


def test_every_room_is_in_the_design() -> None:
    rooms = sorted(path.parent.name for path in (REPOSITORY / "megatron_seirenes").glob("*/__init__.py"))
    design = text(REPOSITORY / "docs" / "design.md")
    assert [room for room in rooms if f"| `{room}/` |" not in design] == []


def test_the_readme_is_read_by_the_checks_above() -> None:
    """A check that finds nothing to check would never fail."""
    readme = REPOSITORY / "README.md"
    assert len(LINK.findall(text(readme))) > 10
    assert {"train", "report", "config"} <= {match["name"] for match in COMMAND.finditer(text(readme))}
    assert next(file for file, _ in configured_calls(readme)) == "yaml_configs/quickstart.yaml"
    assert slug("What works") == "what-works" and slug("`a.b` and `c`") == "ab-and-c"
