"""A pre-norm Transformer around the mixers, in plain PyTorch."""
