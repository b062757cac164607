"""Measures every layout of layout_cases.py against one process of Hugging Face; writes the table of docs/layouts.md.

    PYTHONPATH=tests python tests/actor/layout_table.py        measures and rewrites the table between its markers

One launch a number of ranks, many layouts in it. The reference knows nothing of packing: one sequence after the other.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tiny_hf
import torch
from actor_samples import averaged_sequences
from layout_cases import CASES, NAMES, Case
from router_reference import router_losses
from torchrun import launch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "layouts.md"
BEGIN, END = "<!-- layouts: begin -->\n", "<!-- layouts: end -->\n"
KINDS = ("logits", "logprobs", "loss", "gradients", "weights")
HEAD = (
    "| ranks | model | layout | logits | log-probabilities, entropy | loss | gradients | weights after AdamW |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def make_references(root: Path) -> None:
    """Writes every model as a Hugging Face folder, and what one process makes of it."""
    for name in tiny_hf.DEEP_CONFIGS:
        tiny_hf.save_model(tiny_hf.make_model(name), root / name)
    for case in {case.reference: case for case in CASES}.values():
        torch.save(_reference(case.model, case.objective), root / f"{case.reference}.pt")


def _reference(name: str, objective: Mapping[str, float]) -> dict[str, Any]:
    """The same numbers as in layouts_program.py, from Hugging Face and torch. The loss is without the routers' own."""
    from layouts_program import configuration

    section = configuration({}).optimizer
    model = tiny_hf.make_model(name)
    sequences = averaged_sequences()
    logits = [tiny_hf.response_logits(model, one.prompt_ids, one.response_ids).detach() for one in sequences]
    scores = [tiny_hf.response_scores(model, one.prompt_ids, one.response_ids) for one in sequences]
    loss = -sum(one.weight * logprobs.sum() for one, (logprobs, _) in zip(sequences, scores, strict=True))
    (loss + (router_losses(model, sequences, objective) if objective else 0.0)).backward()
    gradients = {key: value.grad.clone() for key, value in model.named_parameters()}
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), section.gradient_clip)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": section.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    torch.optim.AdamW(groups, lr=section.lr, betas=(section.beta1, section.beta2), eps=section.epsilon).step()
    return {
        "logits": logits,
        "logprobs": [torch.stack(pair).detach() for pair in scores],
        "loss": float(loss.detach()),
        "grad_norm": float(norm),
        "gradients": dict(tiny_hf.published(gradients)),
        "weights": dict(tiny_hf.published({key: value.detach() for key, value in model.named_parameters()})),
    }


def measure(root: Path, cases: Sequence[Case]) -> list[dict[str, float]]:
    """The largest differences of each case; all cases have as many ranks. `root` holds what `make_references` wrote."""
    (ranks,) = {case.ranks for case in cases}
    described = root / "cases.json"
    described.write_text(json.dumps([dataclasses.asdict(case) for case in cases]), encoding="utf-8")
    launch(HERE / "layouts_program.py", ranks, root, described)
    return json.loads((root / "found.json").read_text(encoding="utf-8"))


def row(case: Case, found: dict[str, float]) -> str:
    figures = (f"{found[kind]:.0e}" if kind in found else "—" for kind in KINDS)
    return f"| {case.ranks} | {NAMES[case.model]} | {case.layout} | {' | '.join(figures)} |\n"


def committed_rows() -> list[list[str]]:
    """The cells of every row of the table in docs/layouts.md."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_references(Path(folder))
        for ranks in sorted({case.ranks for case in CASES}):
            cases = [case for case in CASES if case.ranks == ranks]
            rows += [row(*pair) for pair in zip(cases, measure(Path(folder), cases), strict=True)]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + HEAD + "".join(rows) + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
