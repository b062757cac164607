"""Keeps what libraries say about themselves out of what a run says.

Megatron-Core, vLLM and torch warn at import and start-up of things that a user here cannot change (fallbacks that
`seirenes doctor` reports anyway). Errors stay visible. Levels that a user has set, by PYTHONWARNINGS or the libraries'
own variables, are left alone.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

LIBRARIES = ("megatron", "vllm", "torch", "torch.utils.cpp_extension", "transformers")


def quieten_libraries() -> None:
    """Call it once, before torch is imported: torch reads the level of its C++ side then."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)
        if not sys.warnoptions:
            warnings.filterwarnings("ignore", module=rf"{library}(\.|$)")
