"""The actor in every layout of layout_cases.py equals one process of Hugging Face, to 1e-5 in float32.

Logits, log-probabilities, entropy, loss, gradients and the weights after AdamW, packed here and unpacked there; and a
planted fault shows. layout_table.py measures, and writes the table of docs/layouts.md.
"""

from __future__ import annotations

from pathlib import Path

import layout_table
import pytest
from layout_cases import CASES, FAULTS, NAMES, UNMARKED_NORMS

LIMIT = 1e-5


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("references")
    layout_table.make_references(root)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("ranks", sorted({case.ranks for case in CASES}))
def test_every_layout_gives_the_numbers_of_one_process(references: Path, ranks: int) -> None:
    cases = [case for case in CASES if case.ranks == ranks]
    for case, found in zip(cases, layout_table.measure(references, cases), strict=True):
        assert max(found.values()) <= LIMIT, (case, found)


@pytest.mark.slow
def test_a_planted_fault_shows(references: Path) -> None:
    for case, found in zip(FAULTS, layout_table.measure(references, FAULTS), strict=True):
        assert found["gradients"] > 3 * LIMIT, (case, found)
        assert (found["logits"] > 3 * LIMIT) == (case.fault != UNMARKED_NORMS), (case, found)


def test_the_committed_table_lists_these_layouts_and_small_differences() -> None:
    rows = layout_table.committed_rows()
    assert [tuple(row[:3]) for row in rows] == [(str(case.ranks), NAMES[case.model], case.layout) for case in CASES]
    assert len({tuple(row[:3]) for row in rows}) == len(rows) >= 24
    assert all(float(cell) <= LIMIT for row in rows for cell in row[3:] if cell != "—")
