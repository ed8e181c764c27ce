"""Activation functions of the feed-forward layers."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x.float()).type_as(x)


def _gelu_accurate(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _linear(x: Tensor) -> Tensor:
    return x


# The names are those of fairseq.
Activation = Literal["relu", "gelu", "gelu_fast", "gelu_accurate", "tanh", "linear"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": _gelu,
    "gelu_fast": _gelu_accurate,
    "gelu_accurate": _gelu_accurate,
    "tanh": torch.tanh,
    "linear": _linear,
}
