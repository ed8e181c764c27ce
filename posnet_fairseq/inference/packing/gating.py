"""Values and gate of self-attention by one product."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from posnet_fairseq.mixers.bases.gating import Gating


class JoinedGating(nn.Module):
    """The ``gelu`` gate of self-attention, whose values and gate are both of the queries.

    `pack` makes the layer of a linear one that GELU follows.
    """

    def __init__(self, gating: Gating, pack: Callable[[nn.Linear], nn.Module]) -> None:
        super().__init__()
        self.kind = gating.kind
        self.value_and_gate = pack(_joined(gating.value_proj, gating.gate_proj))
        self.value_norm: Any = gating.value_norm
        # By their tokens, which go when an error comes between; several threads may use a model.
        self._waiting: Any = WeakTensorKeyDictionary()

    def value(self, memory: Tensor) -> Tensor:
        """Return values (B, N, D) of tokens (B, N, D). Their gate waits for :meth:`forward`."""
        value, gate = self.value_and_gate(memory).chunk(2, dim=-1)
        self._waiting[memory] = gate
        return self.value_norm(value)

    def forward(self, context: Tensor, query: Tensor) -> Tensor:
        """Gate the mixed values (B, N, D) by the same tokens (B, N, D)."""
        return context * self._waiting.pop(query)


def _joined(*layers: Any) -> nn.Linear:
    """Return a linear layer with the outputs of several, one after another."""
    outputs = sum(layer.out_features for layer in layers)
    joined = nn.Linear(layers[0].in_features, outputs, device="meta")  # without random numbers
    biases = (layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers)
    joined.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]), requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([bias.detach() for bias in biases]), requires_grad=False)
    return joined
