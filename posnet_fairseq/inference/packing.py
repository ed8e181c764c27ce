"""Linear layers whose weights are laid out once, in the order in which this processor multiplies fastest."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.gating import Gating
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.transformer.layers import FeedForward


class PackedLinear(nn.Module):
    """Linear layer by oneDNN, in float32 or bfloat16, with what follows it.

    Inputs and outputs are float32; with bfloat16 weights the input is rounded to bfloat16 and products are summed in
    float32.

    Args:
        linear: layer whose weights are taken.
        dtype: ``torch.float32`` or ``torch.bfloat16``.
        activation: what follows: ``none``, ``relu`` or ``gelu``.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype = torch.float32, activation: str = "none") -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.activation = activation
        self._dtype = dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype))
        self._bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self._algorithm = "none" if activation == "gelu" else ""  # erf, not tanh

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        multiply = torch.ops.mkldnn._linear_pointwise.default
        out = multiply(x.to(self._dtype), self._weight, self._bias, self.activation, [], self._algorithm)
        return out.to(x.dtype)


class Int8Linear(nn.Module):
    """Linear layer with weights of 8 bits, a scale for each output, and inputs rounded to 8 bits at each call.

    Args:
        linear: layer whose weights are taken.
        activation: what follows: ``none``, ``relu`` or ``gelu``.
    """

    def __init__(self, linear: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        self.activation = activation
        weight, scales = quantized_rows(linear.weight.detach())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that its 8-bit tensors will change
            weight = torch._make_per_channel_quantized_tensor(weight, scales, torch.zeros_like(scales).int(), 0)
            bias = None if linear.bias is None else linear.bias.detach().float()
            self._packed = torch.ops.quantized.linear_prepack(weight, bias)
        ops = torch.ops.quantized
        self._multiply: Any = ops.linear_relu_dynamic if activation == "relu" else ops.linear_dynamic

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        # Processors with VNNI sum products of 8 bits without overflow; for others torch would leave out a bit.
        out = self._multiply(x, self._packed, False)
        return nn.functional.gelu(out) if self.activation == "gelu" else out


def quantized_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (O, I) as 8-bit integers, and the scales (O,) that they are multiplied by."""
    scales = (weight.abs().amax(dim=1).double() / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


class PackedGating(nn.Module):
    """The ``gelu`` gate of self-attention: values and gate by one product.

    Args:
        gating: whose weights are taken.
        pack: makes a packed layer of a linear layer and an activation.
    """

    def __init__(self, gating: Gating, pack: Callable[[nn.Linear, str], nn.Module]) -> None:
        super().__init__()
        self.kind = gating.kind
        self.value_proj = pack(_joined(gating.value_proj, gating.gate_proj), "gelu")
        self.value_norm = gating.value_norm
        self._gate: tuple[Tensor, Tensor] | None = None

    def value(self, memory: Tensor) -> Tensor:
        """Tokens (B, M, D) to values (B, M, D). The gate of the same tokens waits for :meth:`forward`."""
        value, gate = self.value_proj(memory).chunk(2, dim=-1)
        self._gate = memory, gate
        return self.value_norm(value)

    def forward(self, context: Tensor, query: Tensor) -> Tensor:
        """Gate the mixed values (B, N, D) by the query tokens (B, N, D), which gave the values too."""
        assert self._gate is not None and self._gate[0] is query
        (_, gate), self._gate = self._gate, None
        return context * gate


def _joined(*layers: Any) -> nn.Linear:
    """One linear layer with the outputs of several, one after another."""
    joined = nn.Linear(layers[0].in_features, sum(layer.out_features for layer in layers))
    joined.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]), requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([layer.bias.detach() for layer in layers]), requires_grad=False)
    return joined


def pack(model: nn.Module, dtype: str) -> None:
    def make(linear: nn.Linear, activation: str = "none") -> nn.Module:
        return (
            Int8Linear(linear, activation)
            if dtype == "int8"
            else PackedLinear(linear, {"bf16": torch.bfloat16}.get(dtype, torch.float32), activation)
        )

    def walk(module):
        if isinstance(module, FeedForward) and module.activation in FUSED:
            module.inner = make(module.inner, FUSED[module.activation])
            module.activation = lambda x: x
        if isinstance(module, TokenMixer) and module.place != "cross" and module.gating.kind == "gelu":
            module.gating = PackedGating(module.gating, make)
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, make(child))
            else:
                walk(child)

    walk(model)


FUSED = {F.relu: "relu"}
