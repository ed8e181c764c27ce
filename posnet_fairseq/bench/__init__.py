"""Benchmarks: ratios between things that run in turn in one process."""
