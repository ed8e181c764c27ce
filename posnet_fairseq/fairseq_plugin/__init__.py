"""Everything that knows fairseq: options, checkpoints, binarised data, averaging, repairs."""
