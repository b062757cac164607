"""`seirenes` and `python -m megatron_seirenes` (also under torchrun)."""

from __future__ import annotations

from megatron_seirenes.cli.main import main

if __name__ == "__main__":
    main()
