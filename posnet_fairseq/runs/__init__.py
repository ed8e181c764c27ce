"""Training runs: their stages, logs and comparisons."""
