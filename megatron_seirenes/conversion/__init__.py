"""Checkpoints from one form into another, and the proof that both are the same model."""
