"""The names of the criterions of :mod:`posnet_fairseq.fairseq_plugin.chunked_loss`."""

PREFIX = "chunked_"  # in front of the name of fairseq's criterion with the same loss
