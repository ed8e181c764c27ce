"""From raw archives to binarized data with a card that says how it was made."""

import posnet_fairseq  # noqa: F401  (shows no traceback of an interrupt, from here on)
