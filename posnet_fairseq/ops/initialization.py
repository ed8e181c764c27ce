"""Initial values of trainable layers: Xavier-uniform matrices, zero biases.

Word embeddings and learned positions start as fairseq's do, normally distributed with variance 1/D.
"""

import math

import torch
from torch import Tensor, nn

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
    return without_decay(torch.zeros(*shape))


def without_decay(values: Tensor) -> nn.Parameter:
    """Return trainable values that take no weight decay."""
    parameter = nn.Parameter(values)
    # The attribute that fairseq reads; fairseq_plugin.repairs makes all of fairseq's optimizers respect it.
    parameter.optim_overrides = {"optimizer": {"weight_decay_scale": 0.0}}  # type: ignore[attr-defined]
    return parameter


def step_bias(count: int) -> nn.Parameter:
    """Return biases b, (count,), for which softplus(b) is log-uniform between .001 and .1, without weight decay.

    Mamba (Gu and Dao, 2023) Section 3.6 starts its step sizes Δ so.
    """
    low, high = math.log(1e-3), math.log(1e-1)
    steps = _drawn(count, low, high).exp()
    return without_decay(torch.empty(count).copy_(steps + torch.log(-torch.expm1(-steps))))  # the inverse of softplus


def log_rates(count: int, low: float, high: float) -> nn.Parameter:
    """Return the logarithms of rates of decay, (count,), uniform between `low` and `high`, without weight decay."""
    return without_decay(torch.empty(count).copy_(_drawn(count, low, high).log()))


def _drawn(count: int, low: float, high: float) -> Tensor:
    """Return numbers on the CPU: on the meta device, functions of them would import all of torch's compiler."""
    return torch.empty(count, device="cpu").uniform_(low, high)
