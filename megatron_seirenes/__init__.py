"""Language models learn to reason through distraction: adversarial self-play (Seirênes) on Megatron-Core and vLLM."""

__version__ = "0.1.0"
