"""Builds the policy as Megatron-Core GPT models, for every family of `architecture.FAMILIES`.

One table, `transformer_config`, says how a shape and a configuration become Megatron-Core's fields; families differ by
data only. Layers come from Transformer Engine on CUDA and from Megatron-Core's local modules on a CPU, with a norm and
a core attention of our own where the local ones refuse sequence parallelism and packing. Parameter names are
Megatron-Core's own: the bridge maps them.

Weights start as zeros and are always loaded afterwards: nothing is drawn, so building a model touches no random state.
Refuses FP8 where it cannot run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from megatron_seirenes.actor.attention import PackedAttention
from megatron_seirenes.architecture import Architecture
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.errors import MissingComponentError, UsageError

RouterBuilder = Callable[..., torch.nn.Module]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_ROUTER_DTYPES = {"float32": "fp32", "float64": "fp64", None: None}
_RECOMPUTE: dict[str, dict[str, Any]] = {
    "none": {},
    "selective": {"recompute_granularity": "selective"},
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}


class RMSNorm:
    """Builds a torch RMSNorm for the local spec; marks its weight, which the local norm of Megatron-Core refuses to."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-6) -> torch.nn.RMSNorm:  # type: ignore[misc]
        norm = torch.nn.RMSNorm(hidden_size, eps=eps, dtype=config.params_dtype)
        # Under sequence parallelism every rank sees its part of the tokens only: gradients are summed over the group.
        norm.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm


class PackedGPTModel(GPTModel):
    """A GPTModel that applies the unfused rotary embedding to all packed sequences at once.

    Given angles for positions 0 to the longest length, Megatron-Core rotates one sequence after the other: for many
    short sequences that costs more than the attention. Given one angle a packed token, it rotates them together.
    """

    def _preprocess(self, input_ids: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        decoder_input, angles, *rest = super()._preprocess(input_ids, position_ids, *args, **kwargs)
        if not self.config.apply_rope_fusion:
            angles = angles[position_ids[0]]  # [longest, 1, 1, head_dim] to [tokens, 1, 1, head_dim]
        return decoder_input, angles, *rest


def padded_vocabulary(vocabulary: int, tensor_parallel: int) -> int:
    """The number of embedding rows, padded so that every tensor-parallel rank holds as many."""
    return -(-vocabulary // tensor_parallel) * tensor_parallel


def transformer_config(architecture: Architecture, config: Config, backend: Backend) -> TransformerConfig:
    """Megatron-Core's configuration of `architecture` under `config`.

    Raises MissingComponentError for what cannot run on this device or is not built yet, UsageError for a layout that
    Megatron-Core does not train.
    """
    _refuse_unbuilt(config, backend)
    if architecture.experts and config.parallel.tensor > 1 and not config.parallel.sequence_parallel:
        raise UsageError(
            f"parallel.tensor is {config.parallel.tensor} in a mixture of experts: Megatron-Core trains that with "
            "sequence parallelism only; set parallel.sequence_parallel to true"
        )
    parallel, dtype = config.parallel, DTYPES[config.model.dtype]
    dispatcher = parallel.expert_dispatcher if architecture.experts else "alltoall"
    return TransformerConfig(
        num_layers=architecture.layers,
        hidden_size=architecture.hidden,
        ffn_hidden_size=architecture.ffn_size,
        num_attention_heads=architecture.heads,
        num_query_groups=architecture.kv_heads,
        kv_channels=architecture.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=architecture.norm_epsilon,
        qk_layernorm=architecture.family.qk_norm,
        add_qkv_bias=architecture.family.qkv_bias,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=F.silu,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        fp8=config.precision.fp8,
        fp8_recipe=config.precision.recipe or "delayed",
        tensor_model_parallel_size=parallel.tensor,
        pipeline_model_parallel_size=parallel.pipeline,
        virtual_pipeline_model_parallel_size=parallel.virtual_pipeline,
        context_parallel_size=parallel.context,
        expert_model_parallel_size=parallel.expert,
        expert_tensor_parallel_size=parallel.expert_tensor,
        sequence_parallel=parallel.sequence_parallel and parallel.tensor > 1,
        # All-gather takes one length only (forward.py pads to it); Megatron-Core checks this in dense models too.
        variable_seq_lengths=parallel.pipeline > 1 and dispatcher == "alltoall",
        moe_token_dispatcher_type=dispatcher,
        # Megatron-Core's "per token" mode averages nowhere: see optimizer.py for why losses must be summed.
        calculate_per_token_loss=True,
        init_method=torch.nn.init.zeros_,
        output_layer_init_method=torch.nn.init.zeros_,
        embedding_init_method=torch.nn.init.zeros_,
        **_expert_fields(architecture, config, backend),
        **_kernel_fields(backend, parallel.virtual_pipeline is not None),
        **_RECOMPUTE[config.actor.recompute],
    )


def _expert_fields(architecture: Architecture, config: Config, backend: Backend) -> dict[str, Any]:
    experts = architecture.experts
    if experts is None:
        return {}
    return {
        "num_moe_experts": experts.count,
        "moe_router_topk": experts.per_token,
        "moe_ffn_hidden_size": experts.ffn_size,
        "moe_router_score_function": "softmax",
        # Softmax over the chosen experts equals softmax over all, renormalised; over all first when it is not.
        "moe_router_pre_softmax": not experts.normalize_weights,
        "moe_router_dtype": _ROUTER_DTYPES[config.precision.router_dtype],
        "moe_router_load_balancing_type": "none",  # router_losses.py has its own
        "moe_grouped_gemm": backend.is_cuda,
        "moe_permute_fusion": backend.is_cuda,
    }


def _kernel_fields(backend: Backend, interleaved: bool) -> dict[str, Any]:
    """Fused kernels exist on CUDA only. An interleaved pipeline is right only with overlapped communication."""
    cuda = backend.is_cuda
    return {
        "transformer_impl": "transformer_engine" if cuda else "local",
        "use_cpu_initialization": not cuda,
        "gradient_accumulation_fusion": False,
        "bias_activation_fusion": cuda,
        "bias_dropout_fusion": cuda,
        "apply_rope_fusion": cuda,
        "masked_softmax_fusion": False,
        "persist_layer_norm": False,
        "deallocate_pipeline_outputs": cuda,
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
    }


def _refuse_unbuilt(config: Config, backend: Backend) -> None:
    if config.precision.fp8 and not backend.is_cuda:
        raise MissingComponentError("precision.fp8 needs Transformer Engine on CUDA; this machine has no CUDA device")


def layer_spec(
    config: TransformerConfig, vp_stage: int | None, router: RouterBuilder | None = None
) -> TransformerBlockSubmodules:
    """The layers of one pipeline chunk: Transformer Engine's, or local ones with our norm and packed attention.

    `router` builds the routers of a mixture of experts; None: Megatron-Core's own.
    """
    if config.transformer_impl == "transformer_engine":
        block = get_gpt_decoder_block_spec(config, use_transformer_engine=True, vp_stage=vp_stage)
        for one in block.layer_specs or []:
            _set_router(one, router)
        return block
    layer = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, qk_layernorm=config.qk_layernorm, normalization="RMSNorm"
    )
    _set_router(layer, router)
    layer.submodules.input_layernorm = RMSNorm
    layer.submodules.pre_mlp_layernorm = RMSNorm
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = PackedAttention
    if config.qk_layernorm:
        attention.q_layernorm = RMSNorm
        attention.k_layernorm = RMSNorm
    layers = get_num_layers_to_build(config, vp_stage=vp_stage)
    return TransformerBlockSubmodules(layer_specs=[layer] * layers, layer_norm=RMSNorm)


def _set_router(layer: ModuleSpec, router: RouterBuilder | None) -> None:
    if router is None:
        return
    mlp = layer.submodules.mlp
    layer.submodules.mlp = partial(mlp.func, submodules=replace(mlp.keywords["submodules"], router=router))


def build_modules(
    architecture: Architecture, config: TransformerConfig, router: RouterBuilder | None = None
) -> list[GPTModel]:
    """This rank's model chunks: one, or `virtual_pipeline` of them, in order of depth. Call within the actor scope.

    `router` builds the routers of a mixture of experts; None: Megatron-Core's own.
    """
    chunks = config.virtual_pipeline_model_parallel_size
    stages: list[int | None] = [None] if chunks is None else list(range(chunks))
    return [_build_chunk(architecture, config, stage, router) for stage in stages]


def _build_chunk(
    architecture: Architecture, config: TransformerConfig, vp_stage: int | None, router: RouterBuilder | None
) -> GPTModel:
    model = PackedGPTModel(
        config=config,
        transformer_layer_spec=layer_spec(config, vp_stage, router),
        vocab_size=padded_vocabulary(architecture.vocabulary, config.tensor_model_parallel_size),
        max_sequence_length=architecture.max_positions,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp_stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage),
        parallel_output=True,
        share_embeddings_and_output_weights=architecture.tied_embeddings,
        position_embedding_type="rope",
        rotary_percent=1.0,
        rotary_base=architecture.rope_theta,
        vp_stage=vp_stage,
    )
    # The router is created in float32 whatever params_dtype says; checkpoints and the engine hold it in model.dtype.
    return model.bfloat16() if config.bf16 else model
