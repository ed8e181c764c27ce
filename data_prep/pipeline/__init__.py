"""The stages from plain text to binarised data."""
