"""Errors, files, processes and progress: what every room needs."""
