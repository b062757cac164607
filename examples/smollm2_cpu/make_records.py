"""Makes warm-up records and training questions out of SVAMP: demonstrations that end in a box, and questions apart.

    python examples/smollm2_cpu/make_records.py --svamp data/svamp.jsonl --out runs/smollm2_cpu/data

SVAMP (MIT) gives each question an equation; a demonstration works it in one line and boxes the result. Every fourth
question is kept for training and never demonstrated. Prompts are those that training will use.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from megatron_seirenes.problems.gold import number
from megatron_seirenes.roles.prompt import load_prompt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svamp", type=Path, required=True, help="svamp.jsonl as published")
    parser.add_argument("--out", type=Path, required=True, help="folder for records.jsonl and questions.jsonl")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.svamp.read_text(encoding="utf-8").splitlines() if line.strip()]
    arguments.out.mkdir(parents=True, exist_ok=True)
    questions = rows[::4]
    demonstrated = [row for index, row in enumerate(rows) if index % 4]
    write(arguments.out / "questions.jsonl", questions)
    write(arguments.out / "records.jsonl", map(record, demonstrated))
    print(f"{len(demonstrated)} records and {len(questions)} questions in {arguments.out}")


def record(row: dict) -> dict:
    """One demonstration: the reasoner's own prompt, one line of work, the box."""
    question = f"{row['Body'].strip()} {row['Question'].strip()}"
    answer = number(row["Answer"])
    response = f"{work(row)} = {answer}. The answer is \\boxed{{{answer}}}."
    return {"messages": load_prompt("reasoner").messages(question, {}), "response": response}


def work(row: dict) -> str:
    """The equation without its outer brackets and with whole numbers where they are whole: `290 / 2`."""
    whole = re.sub(r"(\d+)\.0\b", r"\1", row["Equation"]).strip()
    return whole.removeprefix("(").removesuffix(")").strip()


def write(path: Path, rows) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
