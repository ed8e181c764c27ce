"""Gated values: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 4, and the GLU of LightConv (Wu et al., 2019)."""

from collections.abc import Callable
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.ops.initialization import ONE_OF_THREE, linear

Gate = Literal["none", "gelu", "glu"]
GATES: tuple[Gate, ...] = get_args(Gate)


class Gating(nn.Module):
    """Values on the way into a mixer and the gate on the way out of it, of one of the kinds :data:`GATES`.

    ``none``: v = W_V x.
    ``gelu``: v = LayerNorm(GELU(W_V x)), and the context is multiplied by g = GELU(W_G y) (Eq. 4).
    ``glu``: v = GLU(W_V x) with W_V from D to 2D, no gate on the context (Eq. 14).

    Queries y and values have the width D, the mixed tokens x `memory_dim`; `bias` is that of W_V.
    """

    def __init__(self, kind: str, embed_dim: int, memory_dim: int, bias: bool = True) -> None:
        super().__init__()
        self.kind = kind
        width = 2 * embed_dim if kind == "glu" else embed_dim
        self.value_proj: nn.Module = linear(memory_dim, width, gain=ONE_OF_THREE if kind == "none" else 1.0, bias=bias)
        self.gate_proj: nn.Module | None = linear(embed_dim, embed_dim) if kind == "gelu" else None
        self.value_norm = nn.LayerNorm(embed_dim) if kind == "gelu" else None
        self.activation: Callable[[Tensor], Tensor] = F.gelu

    def value(self, memory: Tensor) -> Tensor:
        """Return values (B, M, D) of tokens (B, M, memory_dim)."""
        value = self.value_proj(memory)
        if self.value_norm is not None:
            return self.value_norm(self.activation(value))
        return F.glu(value) if self.kind == "glu" else value

    def forward(self, context: Tensor, query: Tensor) -> Tensor:
        """Gate the mixed values (B, N, D) by the query tokens (B, N, D)."""
        return context if self.gate_proj is None else context * self.activation(self.gate_proj(query))
