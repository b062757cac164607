"""Round trips of whole checkpoints: every number back as it was, memory and time of each way, and kills half-way.

    python benchmarks/conversion.py models/SmolLM2-135M-Instruct --layouts dense
    python benchmarks/conversion.py /tmp/moe --make-moe models/SmolLM2-135M-Instruct --layouts moe

Prints the table of docs/tools.md. `--make-moe` makes a mixture of experts of 2 GB at the place first, of random
numbers, with the tokenizer of the model that it names. Memory is the most anonymous memory that the converter's process
had at one time (`RssAnon`, asked every 10 ms), less what it has for a model of a few megabytes.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.new_model import create_model_folder
from megatron_seirenes.config.schema import NewModel
from megatron_seirenes.conversion.verify import compare_tensors

TOOL = Path(__file__).resolve().parents[1] / "tools" / "convert_checkpoint.py"
LAYOUTS = {
    "dense": {
        "one process": [],
        "TP 3 PP 2": ["--tensor=3", "--pipeline=2"],
        "PP 5 VPP 3": ["--pipeline=5", "--virtual-pipeline=3"],
    },
    "moe": {
        "EP 4": ["--expert=4", "--expert-tensor=1"],
        "TP 2 PP 2 EP 2": ["--tensor=2", "--pipeline=2", "--expert=2", "--expert-tensor=1"],
        "TP 4 ETP 4 PP 4": ["--tensor=4", "--expert-tensor=4", "--pipeline=4"],
    },
}
SHARES = (0.5, 0.8)
"""When a conversion is killed, as shares of the time that one took."""
HEAD = """| layout | differ | there | back | memory there | memory back | largest shard | torn after kills |
|---|---|---|---|---|---|---|---|"""
MOE = {
    "family": "qwen3_moe",
    "layers": 8,
    "hidden": 1_024,
    "ffn_size": 2_048,
    "heads": 16,
    "kv_heads": 4,
    "head_dim": 64,
    "max_positions": 2_048,
    "experts": 36,
    "experts_per_token": 4,
    "expert_ffn_size": 1_024,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the converter: seconds of wall time, and the most anonymous memory it had, in bytes."""

    seconds: float
    memory: int


def run(*arguments: str | Path, kill_after: float | None = None) -> Run:
    """Calls the converter. Raises RuntimeError when it fails; one that is killed fails as it should."""
    started, memory = time.monotonic(), 0
    process = subprocess.Popen([sys.executable, TOOL, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        memory = max(memory, anonymous_memory(process.pid))
        if kill_after is not None and time.monotonic() - started > kill_after:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    if process.returncode and kill_after is None:
        raise RuntimeError(f"{TOOL.name} {' '.join(map(str, arguments))} ended with {process.returncode}")
    return Run(time.monotonic() - started, memory)


def anonymous_memory(process: int) -> int:
    """Bytes; 0 when the process has just ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((1_024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)


def largest_tensor(folder: Path) -> int:
    """Bytes."""
    with HfFolder(folder) as source:
        return max(source.read(name, (slice(None),) * source.dimensions(name)).nbytes for name in source.names())


def round_trip(source: Path, layout: str, options: list[str], work: Path, idle: int) -> str:
    """One row of the table: there, back, the comparison, and kills on each way."""
    there, back, killed = work / "megatron", work / "back", work / "killed"
    out, home = run("to-megatron", source, there, *options), run("to-hf", there, back)
    wrong = {*compare_tensors(source, there), *compare_tensors(back, there)}
    shard = max(file.stat().st_size for file in there.rglob("*") if file.is_file())
    torn = []
    for share in SHARES:
        run("to-megatron", source, killed, *options, kill_after=share * out.seconds)
        torn += ["there"] * (killed.exists() and bool(compare_tensors(source, killed)))  # there: renamed before
        clear(work)
        run("to-hf", there, killed, kill_after=share * home.seconds)
        torn += ["back"] * (killed.exists() and bool(compare_tensors(killed, there)))
        clear(work)
    seconds = [f"{one.seconds:.1f} s" for one in (out, home)]
    memory = [megabytes(one.memory - idle) for one in (out, home)]
    cells = (layout, str(len(wrong) or "none"), *seconds, *memory, megabytes(shard), ", ".join(torn) or "none")
    return f"| {' | '.join(cells)} |"


def clear(work: Path) -> None:
    for rest in work.glob("*killed*"):
        shutil.rmtree(rest)


def idle_memory(tokenizer: Path, work: Path) -> int:
    """The most that the converter needs for a model of next to nothing: what its libraries take, both ways."""
    tiny = {**MOE, "layers": 1, "hidden": 64, "ffn_size": 64, "experts": 4, "expert_ffn_size": 64}
    create_model_folder(NewModel(tokenizer=str(tokenizer), **tiny), 0, "bfloat16", work / "tiny")
    out, home = run("to-megatron", work / "tiny", work / "there"), run("to-hf", work / "there", work / "back")
    return max(out.memory, home.memory)


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--layouts", choices=list(LAYOUTS), required=True)
    parser.add_argument("--make-moe", type=Path, metavar="TOKENIZER")
    arguments = parser.parse_args()
    if arguments.make_moe is not None and not arguments.model.exists():
        create_model_folder(NewModel(tokenizer=str(arguments.make_moe), **MOE), 0, "bfloat16", arguments.model)
    with tempfile.TemporaryDirectory() as work:
        idle = idle_memory(arguments.model, Path(work))
    size = sum(file.stat().st_size for file in arguments.model.glob("*.safetensors"))
    print(f"{megabytes(size)}, largest tensor {megabytes(largest_tensor(arguments.model))}, idle {megabytes(idle)}\n")
    print(HEAD)
    for layout, options in LAYOUTS[arguments.layouts].items():
        with tempfile.TemporaryDirectory(dir=arguments.model.parent) as work:
            print(round_trip(arguments.model, layout, options, Path(work), idle), flush=True)


if __name__ == "__main__":
    main()
