"""Puts a configuration together: a file, the files it extends, and the overrides of the command line.

`extends:` names one file or a list of files, relative to the file that says so; later ones win over earlier ones and
the file itself over all of them. Mappings merge key by key, everything else (lists too) replaces. A top-level section
that is left empty says nothing. `policies.shared` is the long form of `model`.

Faults are gathered, never raised: a layer that cannot be read contributes a fault and no data.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from megatron_seirenes.config.yaml_reader import Layer, read_yaml

POLICY = "shared"
DEEPEST_KEY = 16


def read_layers(path: Path | None, overrides: Sequence[str]) -> Layer:
    """Everything that `path` (if given), the files it extends and `overrides` say, merged into one layer."""
    layer = _read_file(path, ()) if path is not None else Layer(data={})
    _merge_layer(layer, _read_overrides(overrides))
    return layer


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` on top: mappings merge key by key, anything else replaces. Neither is changed."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = deep_merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _merge_layer(layer: Layer, over: Layer) -> None:
    layer.data = deep_merge(layer.data, over.data)
    layer.where.update(over.where)
    layer.faults.extend(over.faults)


def _read_file(path: Path, chain: tuple[Path, ...]) -> Layer:
    """The layer of `path` on top of those it extends; `chain` is the files that led here."""
    own = _read_own(path)
    extends, named = _take_extends(own, path)
    layer = Layer(data={})
    here = (*chain, _identity(path))
    for name in extends:
        target = path.parent / name
        if _identity(target) in here:
            circle = " -> ".join(step.name for step in (*here, target))
            layer.faults.append(f"extends ({named}): files extend one another in a circle: {circle}")
        else:
            _merge_layer(layer, _read_file(target, here))
    _merge_layer(layer, own)
    return layer


def _identity(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def _read_own(path: Path) -> Layer:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Layer({}, faults=[f"{path}: no such file"])
    except UnicodeDecodeError:
        return Layer({}, faults=[f"{path}: not a text file in UTF-8"])
    except (OSError, ValueError) as error:
        return Layer({}, faults=[f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"])
    return _normalise(read_yaml(text, path.name), path.name)


def _normalise(layer: Layer, source: str) -> Layer:
    """The layer as a mapping of sections: empty sections dropped, `policies.shared` renamed to `model`."""
    if layer.data is None:
        layer.data = {}
    if not isinstance(layer.data, dict):
        layer.faults.append(f"{source}: a mapping of sections is expected, seen {type(layer.data).__name__}")
        layer.data = {}
    layer.data = {key: value for key, value in layer.data.items() if value is not None}
    if "policies" in layer.data:
        _shorten_policies(layer)
    return layer


def _shorten_policies(layer: Layer) -> None:
    policies = layer.data.pop("policies")
    named = layer.where.get(("policies",), "policies")
    if not isinstance(policies, dict):
        layer.faults.append(f"policies ({named}): must be a mapping from names to models")
        return
    for name in policies:
        if name != POLICY:
            hint = f"; did you mean {POLICY}?" if difflib.get_close_matches(name, [POLICY]) else ""
            layer.faults.append(
                f"policies.{name} ({layer.where.get(('policies', name), named)}): "
                f"this release trains one policy, named {POLICY}{hint}"
            )
    if policies.get(POLICY) is None:
        return
    if "model" in layer.data:
        layer.faults.append(f"policies.{POLICY} ({named}): is the long form of model, which is given too: keep one")
        return
    layer.data["model"] = policies[POLICY]
    prefix = ("policies", POLICY)
    for path in [path for path in layer.where if path[:2] == prefix]:
        layer.where[("model", *path[2:])] = layer.where[path]


def _take_extends(layer: Layer, path: Path) -> tuple[list[str], str]:
    """Removes `extends` from the layer; the files it names and where it stands."""
    named = layer.where.get(("extends",), path.name)
    value = layer.data.pop("extends", [])
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
        return names, named
    layer.faults.append(f"extends ({named}): must be a file name or a list of file names, seen {value!r}")
    return [], named


def _read_overrides(overrides: Sequence[str]) -> Layer:
    layer = Layer(data={})
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = key.split(".")
        if not equals or not all(parts) or len(parts) > DEEPEST_KEY:
            layer.faults.append(f"{override!r}: an override is KEY=VALUE with a dotted key, like parallel.tensor=2")
        elif parts[0] == "extends":
            layer.faults.append(f"{override!r}: extends can be said in a file only")
        else:
            value = read_yaml(text, f"override {key}")
            layer.faults.extend(value.faults)
            nested: Any = value.data
            for part in reversed(parts):
                nested = {part: nested}
            layer.data = deep_merge(layer.data, nested)
            _note_command_line(layer, nested, ())
    return _normalise(layer, "command line")


def _note_command_line(layer: Layer, data: Any, path: tuple[str, ...]) -> None:
    if isinstance(data, dict):
        for key, value in data.items():
            layer.where[(*path, key)] = "command line"
            _note_command_line(layer, value, (*path, key))
