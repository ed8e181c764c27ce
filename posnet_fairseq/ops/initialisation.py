"""Layers as all models of this package start them: Xavier-uniform matrices, zero biases."""

import torch
from torch import nn


def linear(in_features, out_features):
    """A Linear layer with a Xavier-uniform matrix and a bias of zeros."""
    layer = nn.Linear(in_features, out_features)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def table(rows, columns):
    """A trainable (rows, columns) table, Xavier-uniform."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))
