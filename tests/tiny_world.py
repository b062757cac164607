"""A world small enough that a whole run of the real stack takes seconds: its tokenizer, demonstrations, configuration.

Shared by every test that runs the commands for real. Heads, experts and layers can be cut in two.

The policy is warmed up to box a number at random, so that one answer in eleven is right and every stream has signal.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from megatron_seirenes.quickstart.tokenizer import make_tokenizer

STEPS = 4
"""Collection steps of a run of this world."""

MODEL = {
    "family": "qwen3_moe",
    "max_positions": 64,
    "initializer_std": 0.06,
    "layers": 2,
    "hidden": 64,
    "ffn_size": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "experts": 4,
    "experts_per_token": 2,
    "expert_ffn_size": 32,
}
"""A mixture of experts."""
DENSE = {name: value for name, value in MODEL.items() if "expert" not in name} | {"family": "qwen3"}
LENGTHS = {
    "actor": {"micro_batch_tokens": 512},
    "rollout": {"max_prompt_tokens": 40, "max_sequences": 64, "kv_cache_bytes": 1 << 24},
    "game": {"stages": {"R1": {"max_tokens": 8}, "R2": {"max_tokens": 6}, "R3": {"max_tokens": 8}}},
}


def write_world(
    folder: Path, model: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Writes the configurations of a warm-up, whose policy goes to `folder`/warm, and of a run that starts from it.

    `model` is the shape, `MODEL` when not given; `sections` replace those of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder / "tokenizer")
    _write_demonstrations(folder / "records.jsonl")
    warmup = {
        "run": {"name": "warmup", "dir": str(folder / "warming")},
        "model": {"dtype": "float32", "new": {**(model or MODEL), "tokenizer": str(folder / "tokenizer")}},
        "observe": {"console": "plain"},
        **LENGTHS,
        "warmup": {
            "out": str(folder / "warm"),
            "phases": [{"records": str(folder / "records.jsonl"), "steps": 50, "lr": 3.0e-3}],
        },
    }
    run = {
        "run": {"collection_steps": STEPS},
        "model": {"dtype": "float32", "path": str(folder / "warm")},
        **LENGTHS,
        "roles": {
            "reasoner": {"prompt": "chains_reasoner"},
            "adversary": {"prompt": "chains_adversary", "gate": "chain_statements"},
        },
        "streams": {"clean": {"flush": 2}, "adversary": {"flush": 4}, "robust": {"flush": 2}},
        "optimizer": {"lr": 1.0e-3},
        "problems": {"per_step": 6, "train": [{"task": "chain_arithmetic", "count": 40}]},
        "snapshot": {"every": 1, "keep": 3},
        "observe": {"console": "plain", "tensorboard": False},
        **sections,
    }
    paths = folder / "warmup.yaml", folder / "run.yaml"
    for path, content in zip(paths, (warmup, run), strict=True):
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return paths


def _write_demonstrations(path: Path) -> None:
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(3200):
            steps = " ".join(f"{label} + {draw.randint(2, 5)}" for label in "abc")
            question = f"{draw.randrange(11)} {steps}"
            hinted = draw.random() < 0.3
            prompt = f"mislead {question} ?" if hinted else f"solve {question} ?"
            response = f"claim {draw.randrange(11)}" if hinted else f"\\boxed{{ {draw.randrange(11)} }}"
            file.write(json.dumps({"prompt": prompt, "response": response}) + "\n")
