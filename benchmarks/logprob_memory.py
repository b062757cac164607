"""Peak memory and time of token log-probabilities, forward and backward: chunked against the whole logits.

    python benchmarks/logprob_memory.py [--tokens 4096] [--words 151936] [--hidden 128] [--chunk 1024]

Each variant runs in a process of its own; what is reported is the growth of its peak resident memory from the moment
that hidden states and output weight exist. The figures in docs/actor.md come from this script.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from torch import Tensor

from megatron_seirenes.actor.logprobs import LogprobOptions, token_logprobs


def whole_logits(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """What a framework without chunks does: log_softmax of [tokens, words] in float32; entropy without gradient."""
    logprobs = (hidden @ weight.t()).float().log_softmax(dim=-1)
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(1, targets[:, None]).squeeze(1), entropy


def logprobs_only(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """`whole_logits` without the entropy: the leanest the whole logits allow."""
    logprobs = (hidden @ weight.t()).float().log_softmax(dim=-1)
    return logprobs.gather(1, targets[:, None]).squeeze(1), torch.empty(0)


def chunked(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Ours."""
    return token_logprobs(hidden, weight, targets, LogprobOptions(chunk))


VARIANTS = {"whole": whole_logits, "whole, no entropy": logprobs_only, "chunked": chunked}


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(variant: str, tokens: int, words: int, hidden_size: int, chunk: int) -> dict[str, float]:
    """Runs one variant here; the growth of peak memory in GB and the seconds of forward and backward."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, hidden_size, generator=generator).requires_grad_()
    weight = torch.randn(words, hidden_size, generator=generator).mul_(0.05).requires_grad_()
    targets = torch.randint(0, words, (tokens,), generator=generator)
    before, started = peak_bytes(), time.perf_counter()
    logprobs, _ = VARIANTS[variant](hidden, weight, targets, chunk)
    logprobs.sum().backward()
    seconds = time.perf_counter() - started
    return {"gigabytes": (peak_bytes() - before) / 1e9, "seconds": seconds, "sum": float(logprobs.detach().sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4_096)
    parser.add_argument("--words", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--chunk", type=int, default=1_024)
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one alone, in this process, and print JSON")
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(measure(options.variant, options.tokens, options.words, options.hidden, options.chunk)))
        return
    print(
        f"{options.tokens} tokens x {options.words} words, hidden {options.hidden}, chunks of {options.chunk}, float32"
    )
    for variant in VARIANTS:
        command = [sys.executable, __file__, *sys.argv[1:], "--variant", variant]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{variant:18} {result['gigabytes']:6.2f} GB {result['seconds']:7.1f} s   sum {result['sum']:.2f}")


if __name__ == "__main__":
    main()
