"""Names of the criterions of :mod:`posnet_fairseq.fairseq_plugin.chunked_loss`."""

PREFIX = "chunked_"  # in front of the name of fairseq's criterion


def is_chunked(name: str) -> bool:
    """Return whether a value of ``--criterion`` computes its loss in chunks."""
    return name.startswith(PREFIX)


def fairseq_name(name: str) -> str:
    """Return the criterion of fairseq with the same loss as a value of ``--criterion``."""
    return name.removeprefix(PREFIX)
