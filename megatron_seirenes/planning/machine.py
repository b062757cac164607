"""What a GPU, its links and the software on it do: numbers that a plan states and that a user may replace.

`MACHINES` are data-sheet figures. `Rates` are what of them is reached: not measured by this project. They were set so
that the plan meets two published runs (`published.py`, which also states the error on the others).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU: bytes, dense bfloat16 FLOP/s, bytes/s of its memory, of NVLink and of the network, each one way."""

    name: str
    memory: float
    flops: float
    memory_bandwidth: float
    node_bandwidth: float
    network_bandwidth: float
    gpus_per_node: int = 8


MACHINES = {
    "h100": Machine("H100 SXM 80 GB", 80e9, 989e12, 3.35e12, 450e9, 50e9),
    "h200": Machine("H200 SXM 141 GB", 141e9, 989e12, 4.8e12, 450e9, 50e9),
    "b200": Machine("B200 SXM 180 GB", 180e9, 2_250e12, 7.7e12, 900e9, 50e9),
}


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the data sheet that are reached, and latencies in seconds.

    `dense_mfu` and `expert_mfu` are of training and scoring, communication and pipeline bubbles not counted;
    `link` is reached on every link, `memory` by decoding. An engine step costs `step_latency`, and `layer_latency`
    more for every layer when the engine is cut (two all-reduces of small messages).
    """

    dense_mfu: float = 0.42
    expert_mfu: float = 0.07
    link: float = 0.7
    memory: float = 0.6
    step_latency: float = 0.007
    layer_latency: float = 0.00005
