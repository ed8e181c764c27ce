"""Runs: from data to scores, in stages, and comparisons of systems (posnet-run)."""
