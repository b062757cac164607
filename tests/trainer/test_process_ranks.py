"""Ranks as real processes over gloo: what is gathered and what is exchanged arrives, empty parcels too."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from megatron_seirenes.trainer.ranks import ProcessRanks, from_first, leaders_to_first, of_leaders

SIZE = 3


def program(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=SIZE)
    ranks = ProcessRanks(replica_size=1, data_rank=rank % 2, timeout=timedelta(seconds=60))
    parcels = [bytes([rank, other]) * (1000 * other) for other in range(SIZE)]  # rank 0 is sent nothing
    seen = {
        "places": (ranks.rank, ranks.places.data_ranks, ranks.places.learners(0)),
        "gathered": ranks.gather({"rank": rank}),
        "in replica": ranks.gather_in_replica(rank),
        "exchanged": ranks.exchange(parcels),
        "nothing": ranks.exchange([b""] * SIZE),
        "from first": from_first(ranks, f"of {rank}"),
        "of leaders": of_leaders(ranks, rank * 10),
        "to first": leaders_to_first(ranks, f"record {rank}"),
    }
    Path(folder, f"{rank}.pickle").write_bytes(pickle.dumps(seen))
    dist.destroy_process_group()


def test_three_processes_hear_each_other(tmp_path):
    multiprocessing.spawn(program, args=(str(tmp_path),), nprocs=SIZE)
    for rank in range(SIZE):
        seen = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        assert seen["places"] == (rank, (0, 1, 0), (0, 2))
        assert seen["gathered"] == [{"rank": other} for other in range(SIZE)]
        assert seen["in replica"] == [rank]
        assert seen["exchanged"] == [bytes([other, rank]) * (1000 * rank) for other in range(SIZE)]
        assert seen["nothing"] == [b""] * SIZE
        assert seen["from first"] == "of 0" and seen["of leaders"] == [0, 10, 20]
        assert seen["to first"] == (["record 0", "record 1", "record 2"] if rank == 0 else None)
