#!/usr/bin/env python3
"""Writes a file of hints for the game static_hints: a policy as Adversary, asked about problems.train.

    python tools/make_hints.py CONFIG OUT.jsonl [--per-question 2] [--attempts 6] [KEY=VALUE ...]

The policy is model.path, its prompt and gate those of roles.adversary. Interrupted, the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file of a run")
    parser.add_argument("out", type=Path, metavar="OUT.jsonl", help="the file that is written")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="dotted keys with YAML values")
    parser.add_argument("--per-question", type=int, default=2, help="hints of each question (default 2)")
    parser.add_argument("--attempts", type=int, default=6, help="askings of a question at most (default 6)")
    arguments = parser.parse_args()
    from megatron_seirenes.config.loading import load_config
    from megatron_seirenes.errors import SeirenesError
    from megatron_seirenes.evaluation.hint_making import make_hints

    try:
        config = load_config(arguments.config, arguments.overrides)
        hints = make_hints(config, arguments.out, arguments.per_question, arguments.attempts)
    except SeirenesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    short = sum(len(found) < arguments.per_question for found in hints.values())
    print(f"{arguments.out}: hints for {len(hints)} questions; {short} have fewer than {arguments.per_question}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
