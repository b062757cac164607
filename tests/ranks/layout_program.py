"""Run by test_layouts.py under torchrun: trains the same small world in one layout after the other, in one launch.

layout_program.py FOLDER CASES.json     each case: name of its run directory, overrides, port of its world
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.device.quiet import quieten_libraries
from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.trainer.train import train


def main(folder: Path, cases: list[dict]) -> None:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"  # every world of this launch has a store of its own
    for case in cases:
        os.environ["MASTER_PORT"] = str(case["port"])
        config = load_config(folder / "run.yaml", [f"run.dir={folder / case['name']}", *case["overrides"]])
        try:
            train(config)
        except SeirenesError as error:
            print(f"{case['name']}: rank {os.environ['RANK']}: {error}", file=sys.stderr, flush=True)
            raise
        except Exception:
            print(f"{case['name']}: rank {os.environ['RANK']}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            raise


if __name__ == "__main__":
    quieten_libraries()
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
