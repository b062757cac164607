"""Reads YAML into plain dictionaries, remembering the line of every key.

PyYAML reads YAML 1.1, in which `1e-6` is a string, `on` is true, `1:30` is ninety and a date is an object. Here scalars
follow the core schema of YAML 1.2 (null, true/false, integers, floats, strings), with underscores allowed in numbers.
Anchors, aliases and `<<: *anchor` work.

Refused, each with its line and all together: keys given twice, keys that are not plain scalars, tags, values that
contain themselves, text that is not valid Unicode. Nothing but plain data is ever constructed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

KeyPath = tuple[str, ...]

MERGE = "<<"

# Tag, pattern, and the characters that a matching scalar can start with (PyYAML looks resolvers up by them).
SCALARS: tuple[tuple[str, re.Pattern[str], list[str]], ...] = (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+0123456789."),
    ),
)

_CONSTRUCT: dict[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:null": lambda text: None,
    "tag:yaml.org,2002:bool": lambda text: text.lower() == "true",
    "tag:yaml.org,2002:int": lambda text: int(text, 0) if text[:2] in ("0x", "0o") else int(text.replace("_", "")),
    "tag:yaml.org,2002:float": lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower().replace("_", ""))),
    "tag:yaml.org,2002:str": str,
}


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars above; never constructs objects."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)


@dataclass(slots=True)
class Layer:
    """What one file, or the command line, says: the data, where each key stands, and what is wrong with the text."""

    data: Any
    where: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read_yaml(text: str, source: str) -> Layer:
    """The content of `text`; `source` (a file name) is what faults and `Layer.where` put before the line number."""
    layer = Layer(data=None)
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        if node is not None:
            layer.data = _Converter(layer, source).value(node, (), frozenset())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        layer.faults.append(f"{source}{line}: not valid YAML: {error.problem or error.context}")
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        layer.faults.append(f"{source}: not valid YAML: {' '.join(str(error).split())}")
    except RecursionError:
        layer.faults.append(f"{source}: not valid YAML: nested too deeply")
    return layer


class _Converter:
    """Turns composed nodes into plain data, noting lines and faults in a layer."""

    def __init__(self, layer: Layer, source: str):
        self._layer = layer
        self._source = source

    def value(self, node: yaml.Node, path: KeyPath, parents: frozenset[int]) -> Any:
        if id(node) in parents:
            self._fault(node, path, "contains itself")
            return None
        parents = parents | {id(node)}
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, parents)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, str(index)), parents) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, parents: frozenset[int]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a key must be plain text")
                continue
            key = key_node.value
            here = (*path, key)
            if key == MERGE:
                merged = self._merge(value_node, path, parents) | merged
                continue
            if key in result:
                self._fault(key_node, here, f"given twice (first at {self._layer.where[here]})")
                continue
            self._check_text(key_node, here)
            self._layer.where[here] = self._line(key_node)
            result[key] = self.value(value_node, here, parents)
        return {**merged, **result}

    def _merge(self, node: yaml.Node, path: KeyPath, parents: frozenset[int]) -> dict[str, Any]:
        """What `<<: *anchor` brings in, under the mapping's own keys."""
        value = self.value(node, path, parents)
        if isinstance(value, dict):
            return value
        self._fault(node, path, f"{MERGE} must name a mapping (an anchor), seen {value!r}")
        return {}

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        construct = _CONSTRUCT.get(node.tag)
        if construct is None:
            self._fault(node, path, f"the tag {node.tag} is not allowed (plain values only)")
            return None
        try:
            return construct(node.value) if self._check_text(node, path) else None
        except (ValueError, OverflowError):
            self._fault(node, path, f"{node.value[:40]!r} cannot be read as a number")
            return None

    def _check_text(self, node: yaml.ScalarNode, path: KeyPath) -> bool:
        try:
            node.value.encode()
        except UnicodeEncodeError:
            self._fault(node, tuple(part.encode(errors="replace").decode() for part in path), "text is not Unicode")
            return False
        return True

    def _line(self, node: yaml.Node) -> str:
        return f"{self._source}:{node.start_mark.line + 1}"

    def _fault(self, node: yaml.Node, path: KeyPath, what: str) -> None:
        self._layer.faults.append(f"{'.'.join(path) or 'the document'} ({self._line(node)}): {what}")
