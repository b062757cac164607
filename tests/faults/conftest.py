"""Faults are tried on the toy run of the trainer's tests, too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "trainer"))
