"""Studies: comparisons under a protocol that was written down before, whose runs leave results to commit."""
