"""The report of one run or of several: one self-contained HTML page that needs no network."""

from megatron_seirenes.observe.report.page import write_report

__all__ = ["write_report"]
