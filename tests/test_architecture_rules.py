"""Who may import whom, what the pure rooms may touch, how long files and functions may be: by reading the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "megatron_seirenes"
MODULES = sorted(PACKAGE.rglob("*.py"))

LONGEST_FILE = 400
LONGEST_FUNCTION = 60

PURE = {"problems", "roles", "games", "streams", "objectives"}
BASE = {"errors", "records", "seeds", "architecture", "config"}

# What a room may import beside itself and BASE. The trainer knows them all; nothing but the entry point knows cli.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "records": set(),
    "seeds": set(),
    "architecture": set(),
    "config": {"games"},
    "problems": set(),
    "roles": {"problems"},
    "games": {"objectives"},
    "streams": {"games"},
    "objectives": {"games"},
    "device": set(),
    "verifier": set(),
    "rollouts": {"games", "roles", "verifier", "device", "bridge"},
    "bridge": {"device"},
    "actor": {"objectives", "bridge", "device"},
    "planning": {"bridge"},
    "benchmark": {"planning", "bridge", "actor", "rollouts", "objectives", "device"},
    "conversion": {"bridge", "actor", "device"},
    "observe": {"games"},
    "evaluation": {"games", "problems", "roles", "rollouts", "verifier", "device", "bridge", "observe", "trainer"},
    "trainer": PURE | {"device", "verifier", "rollouts", "bridge", "actor", "observe", "evaluation"},
    "quickstart": {"problems", "roles", "evaluation", "observe", "trainer"},
    "cli": {"config", "device", "verifier", "observe", "evaluation", "trainer", "quickstart"},
    "__main__": {"cli"},
    "__init__": set(),
}

# Where each outside thing may be imported; everywhere else it is out of bounds.
HOME_OF: dict[str, set[str]] = {
    "megatron": {"actor", "bridge", "device"},
    "vllm": {"rollouts", "device"},
    "math_verify": {"verifier"},
    "transformer_engine": {"actor", "device"},
    "typer": {"cli"},
}
NOT_PURE = {"torch.distributed", "time", "datetime", "multiprocessing", "subprocess", "threading"}
RANDOM_WITHOUT_STATE = {"Random"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported module with its line; `from torch import distributed` counts as torch.distributed."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def named(path: Path, line: int) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{line}"


def outside(paths: list[Path], forbidden: set[str]) -> list[str]:
    """The imports among `paths` of a forbidden module or of something in it."""
    return [
        f"{named(path, line)} imports {module}"
        for path in paths
        for module, line in imports(path)
        if any(module == name or module.startswith(f"{name}.") for name in forbidden)
    ]


def test_every_room_has_a_row() -> None:
    assert {room_of(path) for path in MODULES} <= set(MAY_IMPORT)


def test_rooms_import_only_what_they_may() -> None:
    breaches = []
    for path in MODULES:
        room = room_of(path)
        allowed = MAY_IMPORT[room] | BASE | {room}
        for module, line in imports(path):
            if (target := imported_room(module)) and target not in allowed:
                breaches.append(f"{named(path, line)}: {room} must not import {module}")
    assert breaches == []


def imported_room(module: str) -> str | None:
    """The room that an import of ours names; None for anything else, `__version__` of the package too."""
    parts = module.split(".")
    ours = parts[0] == "megatron_seirenes" and len(parts) > 1 and not parts[1].startswith("__")
    return parts[1] if ours else None


@pytest.mark.parametrize("thing", HOME_OF)
def test_outside_things_stay_in_their_rooms(thing: str) -> None:
    elsewhere = [path for path in MODULES if room_of(path) not in HOME_OF[thing]]
    assert outside(elsewhere, {thing}) == []


def test_pure_rooms_know_no_processes_and_no_clock() -> None:
    pure = [path for path in MODULES if room_of(path) in PURE]
    assert outside(pure, NOT_PURE) == []


def test_pure_rooms_have_no_global_random_state() -> None:
    breaches = []
    for path in (path for path in MODULES if room_of(path) in PURE):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Attribute) and uses_global_random(node):
                breaches.append(f"{named(path, node.lineno)}: {ast.unparse(node)}")
    assert breaches == []


def uses_global_random(node: ast.Attribute) -> bool:
    owner = ast.unparse(node.value)
    if owner == "random":
        return node.attr not in RANDOM_WITHOUT_STATE
    if owner in ("np.random", "numpy.random"):
        return node.attr not in ("default_rng", "Generator")
    return owner == "torch" and node.attr in ("manual_seed", "seed", "rand", "randn", "randint", "randperm")


def test_files_are_short() -> None:
    lengths = {named(path, 1): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    long = []
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{named(path, node.lineno)} {node.name}: {length} lines")
    assert long == []
