"""Initial values of trainable layers: Xavier-uniform matrices, zero biases.

Word embeddings and learned positions start as fairseq's do, normally distributed with variance 1/D.
"""

import torch
from torch import nn

from posnet_fairseq.ops.linear import Linear

# Gain of the query, key and value projections of attention: as in fairseq and PyTorch they start as if they were one
# 3D × D matrix.
ONE_OF_THREE = 2**-0.5


def linear(in_features: int, out_features: int, gain: float = 1.0, bias: bool = True) -> Linear:
    """Return a linear layer with a Xavier-uniform matrix and, with ``bias``, a bias of zeros."""
    layer = Linear(in_features, out_features, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain=gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def table(rows: int, columns: int) -> nn.Parameter:
    """Return a trainable (rows, columns) table, Xavier-uniform."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


def zeros_without_decay(*shape: int) -> nn.Parameter:
    """Return a trainable table of zeros that takes no weight decay."""
    parameter = nn.Parameter(torch.zeros(*shape))
    # The attribute that fairseq reads; fairseq_plugin.repairs makes all of fairseq's optimizers respect it.
    parameter.optim_overrides = {"optimizer": {"weight_decay_scale": 0.0}}  # type: ignore[attr-defined]
    return parameter
