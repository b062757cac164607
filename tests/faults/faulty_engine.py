"""`seirenes` with a vLLM engine that fails once, in a collection step: `faulty_engine.py KIND STEP MARKER ARGUMENTS...`

KIND `hung`: a step of the engine does not return. KIND `stalled`: its steps return without a token until somebody
aborts requests. The file MARKER is made when the engine fails; where it exists, the engine works.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from megatron_seirenes.cli.main import main
from megatron_seirenes.rollouts.vllm_engine import VLLMEngine


class FaultyEngine:
    """Stands before the methods of `VLLMEngine`; installed before the command begins."""

    def __init__(self, kind: str, step: int, marker: Path):
        self.kind = kind
        self.step = step
        self.marker = marker
        self.asked_in = 0
        self.failing = False

    def install(self) -> None:
        submit, step, abort = VLLMEngine.submit, VLLMEngine.step, VLLMEngine.abort

        def submit_noting(engine, request):
            self.asked_in = int(request.id.split("/")[0])
            submit(engine, request)

        def step_failing(engine):
            if self.asked_in == self.step and not self.marker.exists():
                self.marker.touch()
                self.failing = True
            if self.failing and self.kind == "hung":
                time.sleep(3600)
            return () if self.failing else step(engine)

        def abort_mending(engine, request_ids):
            self.failing = False
            abort(engine, request_ids)

        VLLMEngine.submit, VLLMEngine.step, VLLMEngine.abort = submit_noting, step_failing, abort_mending


if __name__ == "__main__":
    kind, step, marker, *arguments = sys.argv[1:]
    FaultyEngine(kind, int(step), Path(marker)).install()
    main(arguments)
