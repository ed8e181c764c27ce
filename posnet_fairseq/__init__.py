"""posnet: token mixers in place of self-attention, a plugin for fairseq (``--user-dir posnet_fairseq``).

Importing :mod:`posnet_fairseq.models` registers the plugin, which is what fairseq does with ``--user-dir``.
"""

__version__ = "0.1.0"
