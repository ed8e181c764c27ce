"""Numerics that several mixers share."""
