"""From a YAML file and overrides to a checked `Config`, and back.

Everything that is wrong is reported in one `ConfigError`: text that cannot be read, unknown keys, wrong types and
ranges, and rules that span keys. A rule is not asked about a key that is already faulty. Nothing else is ever raised
for a bad configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from megatron_seirenes.config.faults import Fault, prune, render, rests_on, schema_faults
from megatron_seirenes.config.layers import read_layers
from megatron_seirenes.config.rules import cross_field_faults
from megatron_seirenes.config.schema import Config
from megatron_seirenes.config.yaml_reader import SCALARS, KeyPath, Layer
from megatron_seirenes.errors import ConfigError

UNICODE_BREAKS = {"\x85", "\u2028", "\u2029"}


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration of a file under `KEY=VALUE` overrides. Raises ConfigError with every fault."""
    return _check(read_layers(Path(path), overrides), str(path))


def config_of_overrides(overrides: Sequence[str]) -> Config:
    """The defaults under `KEY=VALUE` overrides, without a file. Raises ConfigError with every fault."""
    return _check(read_layers(None, overrides), "command line")


def build_config(data: Mapping[str, Any], source: str = "configuration") -> Config:
    """The configuration that a mapping of plain data describes. Raises ConfigError with every fault."""
    return _check(Layer(dict(data)), source)


def dump_config(config: Config) -> str:
    """The whole configuration as YAML, defaults included; `load_config` reads back an equal one."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _check(layer: Layer, source: str) -> Config:
    config, faults = _validate(layer.data)
    lines = layer.faults + [render(fault, layer.where) for fault in faults]
    if lines or config is None:
        raise ConfigError(source, [" ".join(line.splitlines()) for line in lines])
    return config


def _validate(data: Mapping[str, Any]) -> tuple[Config | None, list[Fault]]:
    """The configuration and its faults; with schema faults, that of the rest, checked by the rules all the same."""
    faults: list[Fault] = []
    pruned: list[KeyPath] = []
    while True:
        try:
            config = Config.model_validate(data)
            break
        except ValidationError as error:
            found = schema_faults(error, data)
        # Only the first look at the data finds faults of the user; later ones find keys that pruning took away.
        faults = faults or list(found.values())
        data, taken = prune(data, found)
        if not taken:
            return None, faults
        pruned += taken
    return config, [*faults, *(breach for breach in cross_field_faults(config) if not rests_on(breach, pruned))]


class _Dumper(yaml.SafeDumper):
    """Quotes every string that YAML 1.1 or our reader would take for something else."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """PyYAML writes Unicode's line breaks plain and reads them back as newlines; double quotes escape them."""
    style = '"' if UNICODE_BREAKS & set(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
for _tag, _pattern, _first in SCALARS:
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)
