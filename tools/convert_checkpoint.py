"""Converts checkpoints between Hugging Face and Megatron-Core, streaming and bit for bit (docs/tools.md).

tools/convert_checkpoint.py to-megatron models/Qwen3-4B checkpoints/qwen3-4b --tensor 2 --pipeline 2
tools/convert_checkpoint.py to-hf checkpoints/qwen3-4b models/back
tools/convert_checkpoint.py verify models/Qwen3-4B checkpoints/qwen3-4b --text "One and one is two."
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from megatron_seirenes.device.quiet import quieten_libraries
from megatron_seirenes.errors import SeirenesError

TEXT = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    there = commands.add_parser("to-megatron", help="Hugging Face folder to Megatron-Core distributed checkpoint")
    there.add_argument("source", type=Path)
    there.add_argument("out", type=Path)
    for size in ("tensor", "pipeline", "virtual-pipeline", "expert"):
        there.add_argument(f"--{size}", type=int, default=1, help="of the layout whose shards the chunks are")
    there.add_argument("--expert-tensor", type=int, help="default: as --tensor")
    back = commands.add_parser("to-hf", help="Megatron-Core distributed checkpoint to Hugging Face folder")
    back.add_argument("checkpoint", type=Path)
    back.add_argument("out", type=Path)
    back.add_argument(
        "--source", type=Path, help="folder with config.json and tokenizer; default: what was carried along"
    )
    check = commands.add_parser("verify", help="compares both, tensor by tensor and on text")
    check.add_argument("folder", type=Path)
    check.add_argument("checkpoint", type=Path)
    check.add_argument("--text", nargs="+", default=[TEXT])
    check.add_argument("--tolerance", type=float, default=1e-4, help="in log-probability, both computed in float32")
    return parser.parse_args()


class Progress:
    """One line on stderr, at most one a second, with the time left."""

    def __init__(self) -> None:
        self.started = self.told = time.monotonic()

    def __call__(self, done: int, whole: int) -> None:
        now = time.monotonic()
        if now - self.told < 1 and done < whole:
            return
        self.told = now
        left = (now - self.started) * (whole - done) / max(done, 1)
        end = "\n" if done >= whole else "\r"
        print(f"{100 * done / whole:5.1f} %  {left:6.0f} s left", end=end, file=sys.stderr, flush=True)


def main() -> int:
    chosen = arguments()
    quieten_libraries()
    if chosen.command == "verify":
        return verified(chosen)
    from megatron_seirenes.bridge.plan_layouts import TrainingLayout
    from megatron_seirenes.conversion.convert import to_hf, to_megatron

    if chosen.command == "to-hf":
        to_hf(chosen.checkpoint, chosen.out, chosen.source, Progress())
        return 0
    expert_tensor = chosen.expert_tensor or chosen.tensor
    block = max(chosen.tensor, chosen.expert * expert_tensor)
    layout = TrainingLayout(
        world=block * chosen.pipeline,
        tensor=chosen.tensor,
        pipeline=chosen.pipeline,
        virtual_pipeline=chosen.virtual_pipeline,
        expert=chosen.expert,
        expert_tensor=expert_tensor,
    )
    to_megatron(chosen.source, chosen.out, layout, Progress())
    return 0


def verified(chosen: argparse.Namespace) -> int:
    from megatron_seirenes.conversion.verify import verify

    agreement = verify(chosen.folder, chosen.checkpoint, chosen.text)
    print(f"tensors that differ: {len(agreement.differing)} {' '.join(agreement.differing[:5])}".rstrip())
    print(
        f"{agreement.tokens} tokens: log-probabilities within {agreement.logprob_difference:.2e}, "
        f"entropies within {agreement.entropy_difference:.2e} (tolerance {chosen.tolerance:.0e})"
    )
    return 0 if agreement.holds(chosen.tolerance) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeirenesError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
