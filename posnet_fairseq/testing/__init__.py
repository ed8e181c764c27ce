"""Laws that every token mixer must keep, to run against new ones."""

from posnet_fairseq.testing.checking import check_mixer

__all__ = ["check_mixer"]
