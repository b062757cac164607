"""The whole road on one machine with no download: a small world, a small model, warm-up, self-play, evaluation."""
