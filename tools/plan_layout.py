"""Ranks parallel layouts on paper: memory, bytes of a sync and step time on 8 to 1,024 GPUs (docs/tools.md).

tools/plan_layout.py --model qwen3-30b-a3b --gpus 16 64 256
tools/plan_layout.py --model models/Qwen3-4B --gpus 8 --machine h200 --response-tokens 6000 --json
tools/plan_layout.py --published
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from megatron_seirenes.errors import SeirenesError, UsageError
from megatron_seirenes.planning.duration import Workload
from megatron_seirenes.planning.machine import MACHINES, Machine
from megatron_seirenes.planning.report import as_data, published_table, table
from megatron_seirenes.planning.search import estimates
from megatron_seirenes.planning.shapes import SHAPES, find_shape

DEFAULT = Workload()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-30b-a3b", help=f"a model folder, or one of {', '.join(SHAPES)}")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--machine", choices=sorted(MACHINES), default="h100")
    parser.add_argument("--network-gb", type=float, help="bytes a second of one GPU over the network, in 1e9")
    parser.add_argument("--node-gb", type=float, help="bytes a second of one GPU over NVLink, in 1e9")
    parser.add_argument("--response-tokens", type=float, default=DEFAULT.response_tokens, help="mean of a response")
    parser.add_argument("--prompt-tokens", type=float, default=DEFAULT.prompt_tokens, help="mean of a prompt")
    parser.add_argument("--longest", type=int, default=DEFAULT.longest, help="limit of a response")
    parser.add_argument("--top", type=int, default=5, help="layouts shown (default 5)")
    parser.add_argument("--json", action="store_true", help="one JSON object a layout that is shown")
    parser.add_argument("--published", action="store_true", help="compare the plan with published runs instead")
    return parser.parse_args()


def machine_of(chosen: argparse.Namespace) -> Machine:
    machine = MACHINES[chosen.machine]
    if chosen.network_gb:
        machine = replace(machine, network_bandwidth=chosen.network_gb * 1e9)
    if chosen.node_gb:
        machine = replace(machine, node_bandwidth=chosen.node_gb * 1e9)
    return machine


def main() -> None:
    chosen = arguments()
    if chosen.published:
        print(published_table())
        return
    if min(chosen.gpus) < 1:
        raise UsageError(f"--gpus: {min(chosen.gpus)}; at least one is needed")
    architecture, machine = find_shape(chosen.model), machine_of(chosen)
    work = replace(
        DEFAULT,
        response_tokens=chosen.response_tokens,
        prompt_tokens=chosen.prompt_tokens,
        longest=chosen.longest,
    )
    for gpus in chosen.gpus:
        found = estimates(architecture, gpus, machine, work, top=chosen.top)
        if chosen.json:
            print("\n".join(json.dumps(as_data(one)) for one in found[: chosen.top]))
        else:
            print(f"{chosen.model} on {gpus} x {machine.name}\n{table(found, work, chosen.top)}\n")


if __name__ == "__main__":
    try:
        main()
    except SeirenesError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
