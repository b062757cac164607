"""`seirenes evaluate`: measures a policy on benchmarks."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import ConfigFile, Overrides

EXAMPLE = "seirenes evaluate runs/quickstart/configs/seirenes.yaml model.path=runs/quickstart/seirenes/policy"


def evaluate(file: ConfigFile, overrides: Overrides = None) -> None:
    """Measure a policy on the named benchmarks: avg@k, pass@k and maj@k, clean and with distractors."""
    from megatron_seirenes.config.loading import load_config

    loaded = load_config(file, overrides or ())
    from megatron_seirenes.evaluation.evaluate import evaluate as run

    run(loaded)
