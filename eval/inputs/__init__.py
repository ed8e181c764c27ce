"""Texts to be scored: configuration, loading, checks."""
