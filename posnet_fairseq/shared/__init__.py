"""Errors, files, processes, progress and commands, for all other packages. Importing them loads no torch."""
