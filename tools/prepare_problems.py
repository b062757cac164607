#!/usr/bin/env python3
"""Makes a difficulty-balanced training set for one model (paper, Appendix B).

    python tools/prepare_problems.py CONFIG [KEY=VALUE ...]

Reads problems.train, removes duplicates and whatever the configured benchmarks ask, lets the model of model.path answer
each question prepare.rollouts times, and writes prepare.count questions to prepare.out, evenly over buckets of
difficulty. Interrupted, the same command goes on; run again, it asks nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file of a run")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="dotted keys with YAML values")
    arguments = parser.parse_args()
    from megatron_seirenes.config.loading import load_config
    from megatron_seirenes.errors import SeirenesError
    from megatron_seirenes.evaluation.prepare import prepare
    from megatron_seirenes.evaluation.prepare_report import report_markdown

    try:
        config = load_config(arguments.config, arguments.overrides)
        print(report_markdown(prepare(config)))
    except SeirenesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{config.prepare.out}: the questions; report.md, removed.jsonl and answers.jsonl lie beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
