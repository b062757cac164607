"""A collective that fails because another rank is gone ends this one with a message, whatever its library says."""

import pytest
import torch.distributed as dist

from megatron_seirenes.device.lost_ranks import LostRank, lost_ranks_told


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:3"),
        RuntimeError("[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms"),
        dist.DistBackendError("NCCL communicator was aborted on rank 1."),
    ],
)
def test_a_failed_collective_is_a_lost_rank(error):
    with pytest.raises(LostRank, match="another rank is gone") as lost, lost_ranks_told(2):
        raise error
    assert lost.value.exit_code == 1 and "newest snapshot" in str(lost.value)


def test_anything_else_stays_what_it_is():
    with pytest.raises(RuntimeError, match="shape mismatch") as bug, lost_ranks_told(2):
        raise RuntimeError("shape mismatch")
    assert not isinstance(bug.value, LostRank)
    with pytest.raises(RuntimeError) as alone, lost_ranks_told(1):
        raise RuntimeError("gloo: Connection closed by peer")
    assert not isinstance(alone.value, LostRank)
