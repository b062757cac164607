"""Quantises a checkpoint. Not built yet: exits 3 and says so.

tools/quantize_checkpoint.py models/Qwen3-4B models/Qwen3-4B-FP8
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from megatron_seirenes.errors import MissingComponentError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.parse_args()
    error = MissingComponentError(
        "quantize_checkpoint: not built yet; train and generate in bfloat16, or quantise an exported folder with "
        "nvidia-modelopt directly"
    )
    print(error, file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
