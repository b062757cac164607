"""The sync and its proof: against the folder a run begins with, against an export, and with faults planted in both.

Two real ranks with real engines: tests/bridge/test_engine_sync.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

from megatron_seirenes.actor.model import build_modules, transformer_config
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.load import load_hf_folder
from megatron_seirenes.bridge.new_model import create_model_folder
from megatron_seirenes.bridge.plan import plan_of
from megatron_seirenes.config.schema import Config, NewModel
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.device.distributed import start_distributed, stop_distributed
from megatron_seirenes.quickstart.tokenizer import make_tokenizer
from megatron_seirenes.trainer.ranks import ALONE, OneRank
from megatron_seirenes.trainer.weight_sync import WeightsDiffer, WeightSync

CONFIG = Config.model_validate({"model": {"dtype": "bfloat16"}})


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    yield start_distributed(CONFIG.parallel).backend
    stop_distributed()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts in float32; the modules hold it in bfloat16."""
    place = tmp_path_factory.mktemp("model")
    make_tokenizer(place / "tokenizer")
    new = NewModel(
        family="qwen3_moe",
        tokenizer=str(place / "tokenizer"),
        layers=2,
        hidden=32,
        ffn_size=32,
        heads=2,
        kv_heads=1,
        head_dim=16,
        max_positions=32,
        experts=4,
        experts_per_token=2,
        expert_ffn_size=16,
    )
    create_model_folder(new, 3, "float32", place / "policy")
    return place / "policy"


class Engine:
    """Remembers what it was given; `meanwhile` happens before it takes the first tensor."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None):
        self.meanwhile = meanwhile
        self.given: dict[str, torch.Tensor] = {}

    def load_weights(self, tensors: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        self.meanwhile()
        self.given = {name: tensor.clone() for name, tensor in tensors}


class OtherRankSawWrong(OneRank):
    """Rank 0 of two; the other one says that a tensor differs there."""

    def gather(self, value):
        return [value, ["model.norm.weight"] if isinstance(value, list) else value]


@pytest.fixture
def make(folder: Path, backend: Backend, tmp_path: Path):
    architecture = read_architecture(folder)
    with backend.actor_scope():
        modules = build_modules(architecture, transformer_config(architecture, CONFIG, backend))
    load_hf_folder(modules, architecture, folder)

    def build(verify: str, fresh: bool = True, ranks=ALONE) -> WeightSync:
        plan = plan_of(CONFIG, architecture, 1)
        scratch = tmp_path / ".synced"
        settings = {"folder": folder, "fresh": fresh, "dtype": "bfloat16", "scratch": scratch, "verify": verify}
        return WeightSync(modules, architecture, plan, ranks, **settings)

    return build


def change(sync: WeightSync) -> None:
    """An update, or a fault: one number of the final norm is another."""
    with torch.no_grad():
        sync.modules[0].decoder.final_layernorm.weight[3] += 1


def test_what_is_loaded_is_proven_once_and_then_the_weights_may_move(make, tmp_path: Path) -> None:
    sync, engine = make("first"), Engine()
    sync(engine, 0)
    assert len(engine.given) > 20
    change(sync)
    sync(engine, 1)
    assert engine.given["model.norm.weight"][3] == 2
    assert not list(tmp_path.iterdir()), "nothing is written for it"


def test_weights_that_are_not_the_folders_end_the_run_by_name(make) -> None:
    sync = make("first")
    change(sync)
    with pytest.raises(WeightsDiffer, match=r"version 0: .* rank 0 .* is not what .*policy holds: model\.norm\.w"):
        sync(Engine(), 0)


def test_a_run_that_goes_on_is_not_compared_with_where_it_began(make) -> None:
    for verify, fresh in (("first", False), ("never", True)):
        sync = make(verify, fresh)
        change(sync)
        sync(Engine(), 4)


def test_every_sync_is_compared_with_an_export_of_its_own(make, tmp_path: Path) -> None:
    sync, engine = make("every", fresh=False), Engine()
    for version in (1, 2):
        change(sync)
        sync(engine, version)
    assert engine.given["model.norm.weight"][3] == 3
    assert not list(tmp_path.iterdir()), "the export is gone"


def test_weights_that_move_while_they_are_synced_are_found(make, tmp_path: Path) -> None:
    sync = make("every")
    with pytest.raises(WeightsDiffer, match=r"\.synced holds: model\.norm\.weight \("):
        sync(Engine(meanwhile=lambda: change(sync)), 1)
    assert not list(tmp_path.iterdir())


def test_a_fault_of_one_rank_ends_all(make) -> None:
    with pytest.raises(WeightsDiffer, match=r"the engine on rank 1 .* model\.norm\.weight"):
        make("first", ranks=OtherRankSawWrong())(Engine(), 0)
