"""docs/configuration.md names every key of the schema, with its default, and no key that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from megatron_seirenes.config.faults import all_keys, model_inside
from megatron_seirenes.config.schema import Config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| (?P<default>[^|]+) \| (?P<meaning>.+) \|$", re.MULTILINE)
# Described once, under problems.train[].
REPEATED = "evaluation.benchmarks.{name}.problems."


def defaults(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Every key of a schema with its default as the page writes it; sections have none."""
    found: dict[str, str] = {}
    for name, info in model.model_fields.items():
        key = prefix + name
        inner = model_inside(info.annotation)
        container = getattr(info.annotation, "__origin__", None)
        found[key] = "*required*" if info.is_required() else f"`{written(info.default)}`"
        if inner is not None:
            found |= defaults(inner, key + {dict: ".{name}.", list: "[]."}.get(container, "."))
    return found


def written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def sections(model: type[BaseModel], keys: list[str]) -> set[str]:
    """The keys that only hold other keys."""
    return {key for key in keys if any(other.startswith((f"{key}.", f"{key}[]")) for other in keys)}


def test_every_key_is_explained_with_its_default() -> None:
    rows = {row["key"]: row["default"] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))}
    keys = all_keys(Config)
    leaves = [key for key in keys if key not in sections(Config, keys) and not key.startswith(REPEATED)]
    assert [key for key in leaves if key not in rows] == []
    assert [key for key in rows if key not in keys] == []
    expected = defaults(Config)
    assert {key: rows[key] for key in leaves} == {key: expected[key] for key in leaves}


def test_every_section_has_a_heading() -> None:
    headings = re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(Config.model_fields)
