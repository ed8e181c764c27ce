"""The stages from plain text to binarized data."""
