"""Activation functions of the feed-forward layers."""

import functools
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_gelu_tanh = functools.partial(F.gelu, approximate="tanh")


# The names are those of fairseq.
Activation = Literal["relu", "gelu", "gelu_fast", "gelu_accurate", "tanh", "linear"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_fast": _gelu_tanh,
    "gelu_accurate": _gelu_tanh,
    "tanh": torch.tanh,
    "linear": torch.positive,
}
