"""Layers as all models of this package start them: Xavier-uniform matrices, zero biases.

Embeddings of words and learned positions start as fairseq's do, normally distributed with variance 1/D.
"""

import torch
from torch import nn

# Queries, keys and values of attention start as if they were one 3D × D matrix, as in fairseq and PyTorch.
ONE_OF_THREE = 2**-0.5


def linear(in_features, out_features, gain=1.0, bias=True):
    """A Linear layer with a Xavier-uniform matrix and a bias of zeros, or none."""
    layer = nn.Linear(in_features, out_features, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain=gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def table(rows, columns):
    """A trainable (rows, columns) table, Xavier-uniform."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


def zeros_without_decay(*shape):
    """A trainable table of zeros that takes no weight decay."""
    parameter = nn.Parameter(torch.zeros(*shape))
    # fairseq's own way to say it; compat.py makes it hold for all of fairseq's optimisers.
    parameter.optim_overrides = {"optimizer": {"weight_decay_scale": 0.0}}
    return parameter
