"""Says in words what is wrong with a configuration: the key, what was seen and what is allowed, one line a fault.

Turns pydantic's errors into `Fault`s, with the nearest known key for an unknown one. `prune` takes the faulty keys out
again, so that the rules that span sections can still be asked about the rest and everything is reported at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from megatron_seirenes.config.schema import Config
from megatron_seirenes.config.yaml_reader import KeyPath


@dataclass(frozen=True, slots=True)
class Fault:
    """`text` says what is wrong with `key`; `about` names every other key that the finding rests on."""

    key: str
    text: str
    about: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *self.about)


def render(fault: Fault, where: Mapping[KeyPath, str]) -> str:
    """The line that a user reads; where the key stands is added when it is known."""
    place = where.get(tuple(fault.key.split(".")))
    return f"{fault.key} ({place}): {fault.text}" if place else f"{fault.key}: {fault.text}"


def rests_on(fault: Fault, pruned: Iterable[KeyPath]) -> bool:
    """Whether a finding uses a key that was taken out as faulty, and so may be a consequence of that fault."""
    used = [tuple(key.split(".")) for key in fault.keys]
    return any(key[: len(cut)] == cut or cut[: len(key)] == key for cut in pruned for key in used)


def schema_faults(error: ValidationError, data: Mapping[str, Any]) -> dict[KeyPath, Fault]:
    """One fault for every place of `data` that pydantic complains about; missing keys are told of their section."""
    complaints: dict[KeyPath, list[str]] = {}
    missing: dict[KeyPath, list[str]] = {}
    for entry in error.errors(include_url=False, include_context=False, include_input=False):
        path = _place(entry["loc"], data)
        if entry["type"] == "missing":
            missing.setdefault(path, []).append(str(entry["loc"][-1]))
        else:
            complaints.setdefault(path, []).append(_complaint(entry["type"], entry["msg"], path))
    for path, names in missing.items():
        plural = "keys are" if len(names) > 1 else "a key is"
        complaints.setdefault(path, []).append(f"{plural} missing: {', '.join(names)}")
    return {path: Fault(".".join(path), _sentence(said, path, data)) for path, said in complaints.items()}


def prune(data: Mapping[str, Any], paths: Iterable[KeyPath]) -> tuple[dict[str, Any], list[KeyPath]]:
    """A copy of `data` without what stands at `paths`, and what was taken out: of a list, the whole list."""
    pruned = deepcopy(dict(data))
    taken: list[KeyPath] = []
    for path in paths:
        node = pruned
        depth = 0
        while depth < len(path) - 1 and isinstance(node.get(path[depth]), dict):
            node = node[path[depth]]
            depth += 1
        if path and path[depth] in node:
            del node[path[depth]]
            taken.append(path[: depth + 1])
    return pruned, taken


def nearest(name: str, known: Sequence[str]) -> str:
    """` did you mean X?` when something known looks like `name`, else the list of what is known."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"


def show(value: Any) -> str:
    """A value as YAML writes it, shortened."""
    text = {"True": "true", "False": "false", "None": "null"}.get(repr(value), repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _descend(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[int(part)] if isinstance(data, list) else data[part]
    return data


def _place(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """The part of pydantic's location that exists in `data`: no missing key, and no name of a union's member."""
    path: list[str] = []
    for part in loc:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if not inside:
            break
        data = data[part]
        path.append(str(part))
    return tuple(path)


def _complaint(kind: str, message: str, path: KeyPath) -> str:
    if kind == "extra_forbidden":
        return _unknown_key(path)
    if kind == "model_type":
        return "must be a section (a mapping of keys)"
    if kind == "string_pattern_mismatch":
        return "must consist of letters, digits, dots, dashes and underscores"
    words = message.replace("Input should be ", "must be ").replace("Input should have ", "must have ")
    for pydantic_word, word in (("a valid ", "a "), ("a integer", "an integer"), ("dictionary", "mapping")):
        words = words.replace(pydantic_word, word)
    return words


def _sentence(said: list[str], path: KeyPath, data: Mapping[str, Any]) -> str:
    joined = said[0] + "".join(f" or {more.removeprefix('must be ')}" for more in dict.fromkeys(said[1:]))
    if joined.startswith("must "):
        return f"{joined}; seen {_seen(_descend(data, path))}"
    return joined


def _seen(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "a string", bool: "a truth value", int: "an integer"}
    kind = kinds.get(type(value), "a number" if isinstance(value, float) else "nothing")
    return f"{show(value)} ({kind})"


def _unknown_key(path: KeyPath) -> str:
    *section, name = path
    model = _section_model(section)
    known = list(model.model_fields) if model else []
    title = ".".join(section) or "the top level"
    if not difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        elsewhere = [key for key in all_keys(Config) if key.split(".")[-1] == name]
        if elsewhere:
            return f"unknown key in {title}; there is {' and '.join(elsewhere)}"
    return f"unknown key in {title}; {nearest(name, known)}"


def _section_model(path: Sequence[str]) -> type[BaseModel] | None:
    """The model that describes the section at `path`, through dictionaries, lists and optional sections."""
    model: type[BaseModel] | None = Config
    inside_container = False
    for part in path:
        if inside_container:
            inside_container = False
            continue
        if model is None or part not in model.model_fields:
            return None
        annotation = model.model_fields[part].annotation
        inside_container = getattr(annotation, "__origin__", None) in (dict, list)
        model = model_inside(annotation)
    return model


def model_inside(annotation: Any) -> type[BaseModel] | None:
    """The section model that a field's annotation mentions: itself, optional, or the items of a list or mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := model_inside(part))), None)


def all_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key of a schema, sections before their keys; `{name}` and `[]` stand for free names and items."""
    keys: list[str] = []
    for name, info in model.model_fields.items():
        key = prefix + name
        keys.append(key)
        inner = model_inside(info.annotation)
        if inner is not None:
            origin = getattr(info.annotation, "__origin__", None)
            keys += all_keys(inner, key + {dict: ".{name}.", list: "[]."}.get(origin, "."))  # type: ignore[arg-type]
    return keys
