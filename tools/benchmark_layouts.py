"""Measures parallel layouts on this machine, each in a torchrun of its own (docs/tools.md).

tools/benchmark_layouts.py yaml_configs/qwen3_4b.yaml --devices 8 --layout tensor=2,sequence_parallel=true,rollout=2
tools/benchmark_layouts.py my.yaml model.path=models/small --devices 2 --all --out results
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.benchmark.cases import Result, Work, all_layouts, overrides_of
from megatron_seirenes.benchmark.launch import measure_all
from megatron_seirenes.benchmark.report import as_csv, plot, table
from megatron_seirenes.config.loading import load_config
from megatron_seirenes.errors import SeirenesError, UsageError

WORK = Work()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a configuration that names the model")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--devices", type=int, default=1, help="processes of a layout, one a device")
    parser.add_argument(
        "--layout", action="append", default=[], help="keys of `parallel`, and rollout for rollout.tensor"
    )
    parser.add_argument("--all", action="store_true", help="every layout that the devices can be cut into")
    parser.add_argument("--sequences", type=int, default=WORK.sequences, help="of a step, over all devices")
    parser.add_argument("--prompt-tokens", type=int, default=WORK.prompt_tokens)
    parser.add_argument("--response-tokens", type=int, default=WORK.response_tokens)
    parser.add_argument("--repeats", type=int, default=WORK.repeats)
    parser.add_argument("--timeout", type=float, default=1_800, help="seconds of one layout")
    parser.add_argument("--out", type=Path, default=Path("layouts"), help="folder for layouts.csv, .md and .svg")
    return parser.parse_args()


def tell(result: Result) -> None:
    what = result.reason or f"{result.seconds['step']:.2f} s a step" if result.seconds or result.reason else "nothing"
    print(f"{result.layout or '(none)'}: {what}", file=sys.stderr, flush=True)


def main() -> int:
    chosen = arguments()
    config = load_config(chosen.config, chosen.overrides)
    if config.model.path is None:
        raise UsageError("model.path: a Hugging Face model folder is needed")
    layouts = chosen.layout or [""]
    if chosen.all:
        layouts = all_layouts(read_architecture(config.model.path), chosen.devices)
    for layout in layouts:
        overrides_of(layout)
    work = Work(chosen.sequences, chosen.prompt_tokens, chosen.response_tokens, chosen.repeats)
    results = measure_all(chosen.config, chosen.overrides, layouts, chosen.devices, work, chosen.timeout, tell)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("md", table(results) + "\n"), ("csv", as_csv(results)), ("svg", plot(results))):
        (chosen.out / f"layouts.{name}").write_text(text, encoding="utf-8")
    print(table(results))
    return 0 if any(result.seconds for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeirenesError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
