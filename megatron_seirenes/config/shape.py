"""What the rules need to know of a model's shape, whether it exists as a checkpoint or is only described."""

from __future__ import annotations

import os.path
from dataclasses import dataclass

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.config.schema import ModelSection

# The keys that a shape comes from.
MODEL = ("model.path", "model.new")


@dataclass(frozen=True, slots=True)
class Shape:
    """`ffn_size` is a dense layer's intermediate size; `experts` is 0 for a dense model; `context` counts tokens."""

    layers: int
    heads: int
    kv_heads: int
    ffn_size: int
    context: int
    experts: int = 0
    expert_ffn_size: int = 0


def shape_of(model: ModelSection) -> Shape | None:
    """The shape, or None when it cannot be known here: no model is chosen, or its folder is not on this machine.

    Raises DataError when the folder is here and does not hold a model that can be trained.
    """
    if model.new is not None:
        new = model.new
        return Shape(
            layers=new.layers,
            heads=new.heads,
            kv_heads=new.kv_heads,
            ffn_size=new.ffn_size,
            context=new.max_positions,
            experts=new.experts or 0,
            expert_ffn_size=new.expert_ffn_size or 0,
        )
    if model.path is None or not os.path.isdir(model.path):
        return None
    read = read_architecture(model.path)
    return Shape(
        layers=read.layers,
        heads=read.heads,
        kv_heads=read.kv_heads,
        ffn_size=read.ffn_size,
        context=read.max_positions,
        experts=read.experts.count if read.experts else 0,
        expert_ffn_size=read.experts.ffn_size if read.experts else 0,
    )
