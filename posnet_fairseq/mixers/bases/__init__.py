"""Base classes of the mixers, their options, gates, and state of step-by-step decoding."""
