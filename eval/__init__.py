"""Scores of translations."""

import posnet_fairseq  # noqa: F401  (shows no traceback of an interrupt, from here on)
