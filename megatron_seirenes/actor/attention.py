"""Core attention over packed sequences for Megatron-Core's local layer spec.

Megatron-Core packs sequences (THD layout) only through Transformer Engine; this module does the same with torch's
`scaled_dot_product_attention`, one call a sequence, so that layers without Transformer Engine can be packed too.

Invariants: a token sees only earlier tokens of its own sequence and itself; padding is a sequence like any other;
key and value heads of grouped-query attention are never copied for their queries.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from megatron_seirenes.actor.context import ContextShare, GatherParts, whole_order


class PackedAttention(nn.Module):
    """Causal self-attention of packed sequences; a `core_attention` of Megatron-Core's attention spec."""

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        softmax_scale: float | None = None,
        pg_collection: Any = None,
        **unused: Any,
    ) -> None:
        super().__init__()
        assert config.kv_channels is not None
        self.layer_number = layer_number
        self.softmax_scale = softmax_scale or 1.0 / math.sqrt(config.kv_channels)
        self.context_group = None if pg_collection is None or pg_collection.cp.size() == 1 else pg_collection.cp

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: Tensor | None = None,
        packed_seq_params: PackedSeqParams | None = None,
    ) -> Tensor:
        """Attention of every packed sequence to itself.

        `query` is [tokens, heads, head_dim], `key` and `value` are [tokens, groups, head_dim], heads a multiple of
        groups; `packed_seq_params.cu_seqlens_q` (int32, [sequences + 1]) holds where sequences begin and end. Masks
        and biases are refused: causality within a sequence is the only mask there is.
        Returns [tokens, heads x head_dim].
        """
        if packed_seq_params is None or attention_mask is not None or attention_bias is not None:
            raise ValueError("PackedAttention needs packed_seq_params and takes neither a mask nor a bias")
        lengths = packed_seq_params.cu_seqlens_q.diff().tolist()
        if self.context_group is not None:
            return self._over_context(query, key, value, lengths, self.context_group)
        outputs = [
            self._one_sequence(*parts)
            for parts in zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True)
        ]
        return torch.cat(outputs)

    def _over_context(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        """The same where every rank of `group` holds its part of each sequence (`context.py`).

        Keys and values of all ranks are gathered, queries are not: memory grows with the whole length, work does not.
        """
        share = ContextShare(group.rank(), group.size())
        order = whole_order(lengths, share.size, key.device)
        keys, values = GatherParts.apply(torch.cat([key, value], dim=1), group)[order].split(key.shape[1], dim=1)
        own = [length // share.size for length in lengths]
        outputs = []
        for part, wholes, whole_values, length in zip(
            query.split(own), keys.split(lengths), values.split(lengths), lengths, strict=True
        ):
            positions = torch.tensor(share.own(length), device=key.device)
            visible = torch.arange(length, device=key.device) <= positions[:, None]
            outputs.append(self._one_sequence(part, wholes, whole_values, visible))
        return torch.cat(outputs)

    def _one_sequence(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None) -> Tensor:
        """[length, heads, d] and [length, groups, d] to [length, heads x d]; `visible` replaces causality."""
        length, heads, _ = query.shape
        attended = scaled_dot_product_attention(
            query.transpose(0, 1).unsqueeze(0),
            key.transpose(0, 1).unsqueeze(0),
            value.transpose(0, 1).unsqueeze(0),
            attn_mask=visible,
            is_causal=visible is None,
            scale=self.softmax_scale,
            enable_gqa=heads != key.shape[1],
        )
        return attended.squeeze(0).transpose(0, 1).reshape(length, -1)
