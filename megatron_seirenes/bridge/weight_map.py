"""The one declarative map between Hugging Face and Megatron-Core weights; load, export and sync all follow from it.

`ROWS` lists, for every feature a family may have, the parameters of one layer: the Megatron name, the Hugging Face
tensors it is made of with their symbolic shapes, and the group and dimension that cut it. Two layer specs of Megatron
(local and Transformer Engine) name some parameters differently: `OTHER_NAMES`. A new family is rows, not branches.

Refused by name: a Megatron parameter or an expert layout that is in neither table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Block, Group, Parameter
from megatron_seirenes.errors import DataError

Kind = Literal["matrix", "norm", "bias"]

EMBEDDING = "embedding.word_embeddings.weight"
FINAL_NORM = "decoder.final_layernorm.weight"
HEAD = "output_layer.weight"
HF_EMBEDDING = "model.embed_tokens.weight"
HF_FINAL_NORM = "model.norm.weight"
HF_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class HfTensor:
    """One tensor of a published checkpoint. `kind` says how a new model draws it."""

    name: str
    shape: tuple[int, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Source:
    """A Hugging Face tensor of one layer: name under `model.layers.{layer}.`, symbolic shape (`_sizes`), kind."""

    name: str
    shape: tuple[str, ...]
    kind: Kind = "matrix"


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter of a layer: name under `decoder.layers.{layer}.`, its sources stacked in order, how it is cut.

    `per_group` interleaves the sources: for each query group its queries, its key, its value (Megatron's fused QKV).
    """

    name: str
    sources: tuple[Source, ...]
    group: Group | None = None
    dim: int | None = None
    per_group: bool = False


def _norm(name: str, source: str, size: str) -> Row:
    return Row(name, (Source(source, (size,), "norm"),))


ROWS: dict[str, tuple[Row, ...]] = {
    "attention": (
        _norm("input_layernorm.weight", "input_layernorm.weight", "hidden"),
        Row(
            "self_attention.linear_qkv.weight",
            (
                Source("self_attn.q_proj.weight", ("query", "hidden")),
                Source("self_attn.k_proj.weight", ("key", "hidden")),
                Source("self_attn.v_proj.weight", ("key", "hidden")),
            ),
            "tensor",
            0,
            per_group=True,
        ),
        Row(
            "self_attention.linear_proj.weight",
            (Source("self_attn.o_proj.weight", ("hidden", "query")),),
            "tensor",
            1,
        ),
    ),
    "qkv_bias": (
        Row(
            "self_attention.linear_qkv.bias",
            (
                Source("self_attn.q_proj.bias", ("query",), "bias"),
                Source("self_attn.k_proj.bias", ("key",), "bias"),
                Source("self_attn.v_proj.bias", ("key",), "bias"),
            ),
            "tensor",
            0,
            per_group=True,
        ),
    ),
    "qk_norm": (
        _norm("self_attention.q_layernorm.weight", "self_attn.q_norm.weight", "head"),
        _norm("self_attention.k_layernorm.weight", "self_attn.k_norm.weight", "head"),
    ),
    "mlp_norm": (_norm("pre_mlp_layernorm.weight", "post_attention_layernorm.weight", "hidden"),),
    "dense_mlp": (
        Row(
            "mlp.linear_fc1.weight",
            (Source("mlp.gate_proj.weight", ("ffn", "hidden")), Source("mlp.up_proj.weight", ("ffn", "hidden"))),
            "tensor",
            0,
        ),
        Row("mlp.linear_fc2.weight", (Source("mlp.down_proj.weight", ("hidden", "ffn")),), "tensor", 1),
    ),
    "router": (Row("mlp.router.weight", (Source("mlp.gate.weight", ("experts", "hidden")),)),),
    "expert_mlp": (
        Row(
            "mlp.experts.local_experts.{expert}.linear_fc1.weight",
            (
                Source("mlp.experts.{expert}.gate_proj.weight", ("expert_ffn", "hidden")),
                Source("mlp.experts.{expert}.up_proj.weight", ("expert_ffn", "hidden")),
            ),
            "expert_tensor",
            0,
        ),
        Row(
            "mlp.experts.local_experts.{expert}.linear_fc2.weight",
            (Source("mlp.experts.{expert}.down_proj.weight", ("hidden", "expert_ffn")),),
            "expert_tensor",
            1,
        ),
    ),
}

OTHER_NAMES: dict[str, str] = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
    "mlp.experts.linear_fc1.weight{expert}": "mlp.experts.local_experts.{expert}.linear_fc1.weight",
    "mlp.experts.linear_fc2.weight{expert}": "mlp.experts.local_experts.{expert}.linear_fc2.weight",
}

_LAYER_NAME = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_EXPERT_NUMBER = re.compile(r"(?<=\.local_experts\.)\d+|(?<=\.weight)\d+$")
_CANONICAL = {row.name for rows in ROWS.values() for row in rows}


@dataclass(frozen=True, slots=True, eq=False)
class WeightMap:
    """Every parameter by its global name, and every Hugging Face tensor in the fixed order of exports."""

    architecture: Architecture
    parameters: dict[str, Parameter]
    tensors: dict[str, HfTensor]

    def expected(self, layers: Iterable[int], experts: Collection[int], first: bool, last: bool) -> Iterator[str]:
        """The global names that a rank with these layers and experts must hold.

        `first` and `last` say whether it holds the embedding and the head. The head of a tied model exists only on a
        last stage that is not the first, too.
        """
        if first:
            yield EMBEDDING
        for layer in layers:
            for row in _rows(self.architecture):
                yield from (_layer_name(layer, row.name, expert) for expert in _numbers(row, experts))
        if last:
            yield FINAL_NORM
        if last and not (first and self.architecture.tied_embeddings):
            yield HEAD


@lru_cache(maxsize=8)
def build_weight_map(architecture: Architecture, padded_vocabulary: int | None = None) -> WeightMap:
    """The map of one model. `padded_vocabulary` is the number of rows the live embedding has over all ranks.

    Raises DataError when it is smaller than the checkpoint's vocabulary.
    """
    vocabulary = padded_vocabulary or architecture.vocabulary
    if vocabulary < architecture.vocabulary:
        raise DataError(
            f"the model's embedding has {vocabulary} rows, the checkpoint has {architecture.vocabulary}: "
            "a padded vocabulary cannot be smaller"
        )
    sizes = _sizes(architecture)
    hidden = architecture.hidden
    parameters: dict[str, Parameter] = {}
    tensors: dict[str, HfTensor] = {}

    def add(parameter: Parameter, *sources: HfTensor) -> None:
        parameters[parameter.name] = parameter
        tensors.update((source.name, source) for source in sources)

    rows = (architecture.vocabulary, hidden)
    add(_vocabulary_parameter(EMBEDDING, HF_EMBEDDING, rows, vocabulary), HfTensor(HF_EMBEDDING, rows, "matrix"))
    for layer in range(architecture.layers):
        for row in _rows(architecture):
            for expert in _numbers(row, range(sizes["experts"])):
                add(*_layer_entry(row, layer, expert, architecture, sizes))
    add(
        Parameter(FINAL_NORM, (hidden,), ((Block(HF_FINAL_NORM, 0, hidden),),)),
        HfTensor(HF_FINAL_NORM, (hidden,), "norm"),
    )
    if architecture.tied_embeddings:
        add(_vocabulary_parameter(HEAD, HF_EMBEDDING, rows, vocabulary, replica=True))
    else:
        add(_vocabulary_parameter(HEAD, HF_HEAD, rows, vocabulary), HfTensor(HF_HEAD, rows, "matrix"))
    return WeightMap(architecture, parameters, tensors)


def global_name(live_name: str, layers: Sequence[int], first_expert: int) -> str:
    """The global name of a parameter that a module calls `live_name`.

    `layers[i]` is the global number (from 0) of the module's i-th layer, `first_expert` that of its first expert.
    Raises DataError for a name that neither layer spec has.
    """
    match = _LAYER_NAME.fullmatch(live_name)
    if match is None:
        if live_name in (EMBEDDING, FINAL_NORM, HEAD):
            return live_name
        raise _unknown(live_name)
    suffix = match.group(2)
    number = _EXPERT_NUMBER.search(suffix)
    template = _EXPERT_NUMBER.sub("{expert}", suffix)
    canonical = OTHER_NAMES.get(template, template)
    if canonical not in _CANONICAL:
        raise _unknown(live_name)
    expert = first_expert + int(number.group()) if number else None
    return _layer_name(layers[int(match.group(1))], canonical, expert)


def _unknown(live_name: str) -> DataError:
    return DataError(
        f"Megatron parameter {live_name!r} is not in the weight map: known are the names of the local and the "
        "Transformer Engine layer specs, with experts as local_experts.N.linear_fc1/2.weight or linear_fc1/2.weightN"
    )


def _rows(architecture: Architecture) -> Iterator[Row]:
    family = architecture.family
    present = {
        "attention": True,
        "qkv_bias": family.qkv_bias,
        "qk_norm": family.qk_norm,
        "mlp_norm": True,
        "dense_mlp": not family.moe,
        "router": family.moe,
        "expert_mlp": family.moe,
    }
    for feature, rows in ROWS.items():
        if present[feature]:
            yield from rows


def _sizes(architecture: Architecture) -> dict[str, int]:
    experts = architecture.experts
    return {
        "hidden": architecture.hidden,
        "query": architecture.heads * architecture.head_dim,
        "key": architecture.kv_heads * architecture.head_dim,
        "head": architecture.head_dim,
        "ffn": architecture.ffn_size,
        "experts": experts.count if experts else 0,
        "expert_ffn": experts.ffn_size if experts else 0,
    }


def _numbers(row: Row, experts: Iterable[int]) -> Iterable[int | None]:
    """The expert numbers a row stands for: one parameter without a number, or one an expert."""
    return experts if "{expert}" in row.name else (None,)


def _layer_name(layer: int, name: str, expert: int | None) -> str:
    return f"decoder.layers.{layer}.{name}".replace("{expert}", str(expert))


def _layer_entry(
    row: Row, layer: int, expert: int | None, architecture: Architecture, sizes: dict[str, int]
) -> tuple[Parameter, *tuple[HfTensor, ...]]:
    """One parameter of one layer, and the Hugging Face tensors it is made of."""
    sources = tuple(
        HfTensor(
            f"model.layers.{layer}.{source.name}".replace("{expert}", str(expert)),
            tuple(sizes[size] for size in source.shape),
            source.kind,
        )
        for source in row.sources
    )
    if row.per_group:
        parts: tuple[tuple[Block, ...], ...] = (_per_group(sources, architecture.kv_heads),)
    else:
        parts = tuple((Block(source.name, 0, source.shape[0]),) for source in sources)
    shape = (sum(source.shape[0] for source in sources), *sources[0].shape[1:])
    return Parameter(_layer_name(layer, row.name, expert), shape, parts, row.group, row.dim), *sources


def _per_group(sources: Sequence[HfTensor], groups: int) -> tuple[Block, ...]:
    """For each query group, the rows of each source that belong to it."""
    return tuple(
        Block(source.name, group * (source.shape[0] // groups), source.shape[0] // groups)
        for group in range(groups)
        for source in sources
    )


def _vocabulary_parameter(
    name: str, source: str, shape: tuple[int, int], padded: int, replica: bool = False
) -> Parameter:
    rows, hidden = shape
    padding = (Block(None, 0, padded - rows),) if padded > rows else ()
    return Parameter(name, (padded, hidden), ((Block(source, 0, rows), *padding),), "tensor", 0, replica)
