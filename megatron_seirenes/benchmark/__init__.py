"""What a layout really takes on this machine: training, scoring, generation and sync, apart and together."""
