"""Model folders that are not what they should be: an architecture, weights, or a DataError that names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.errors import DataError

pytestmark = pytest.mark.faults

CONFIG = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "rope_parameters": None,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "hidden_act": "silu",
}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["rope_theta", "rope_type", "type", "x"]), st.none() | st.text() | st.floats()),
)
SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@SETTINGS
@given(changes=st.dictionaries(st.sampled_from(sorted(CONFIG)), VALUES, min_size=1, max_size=3))
@example(changes={"model_type": []})
@example(changes={"rope_parameters": {"rope_theta": "wide"}})
def test_config_json(tmp_path_factory: pytest.TempPathFactory, changes: dict) -> None:
    folder = tmp_path_factory.getbasetemp() / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    try:
        found = read_architecture(folder)
    except DataError as error:
        message = str(error)
        assert "config.json" in message
    else:
        assert min(found.layers, found.hidden, found.heads, found.kv_heads, found.head_dim, found.vocabulary) > 0


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff\xfe", b"[]", b"null", b"{"])
def test_config_json_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(DataError, match=r"config\.json"):
        read_architecture(tmp_path)


@SETTINGS
@given(place=st.integers(0, 2000), length=st.integers(0, 400), put=st.binary(max_size=10))
def test_weights(tmp_path_factory: pytest.TempPathFactory, place: int, length: int, put: bytes) -> None:
    """Headers are broken at random; values of weights are not checked, only where they lie."""
    folder = tmp_path_factory.getbasetemp() / "weights"
    folder.mkdir(exist_ok=True)
    file = folder / "model.safetensors"
    save_file({"a": torch.zeros(4, 8), "b": torch.ones(16)}, file)
    content = file.read_bytes()
    file.write_bytes(content[:place] + put + content[place + length :])
    try:
        with HfFolder(folder) as opened:
            for name in opened.names():
                opened.read(name, (slice(None),))
    except DataError as error:
        message = str(error)
        assert "weights" in message
