"""Layers of a trained model are replaced by faster ones that compute the same, for inference on CPUs.

Weights of linear layers and embeddings are laid out anew; activations become part of the products in front of them.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.energies import Energy
from posnet_fairseq.mixers.bases.gating import Gating
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.linear import multiplies_bf16
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.decoder import CausalDecoder
from posnet_fairseq.transformer.layers import FeedForward

# What a linear layer computes of its products.
Activation = Literal["none", "relu", "gelu"]
# The largest weight in int8. Processors without VNNI add two products in 16 bits: 2 · 255 · 63 < 2¹⁵ fits into them.
LARGEST = 127 if torch.cpu._is_vnni_supported() else 63
# Activations that a linear layer computes with its products.
_JOINED: dict[Callable, Activation] = {ACTIVATIONS["relu"]: "relu", ACTIVATIONS["gelu"]: "gelu"}
_PROJECTIONS = ("query_proj", "key_proj", "in_proj", "out_proj")


class PlainLinear(nn.Module):
    """Linear layer as torch has it, with what follows it; weights and inputs are rounded to `dtype`."""

    def __init__(self, linear: nn.Linear, activation: Activation = "none", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self._dtype = dtype
        self.weight = linear.weight if dtype == torch.float32 else nn.Parameter(_rounded(linear.weight.detach(), dtype))
        self.bias = linear.bias
        self._activate = {"none": nn.Identity(), "relu": nn.ReLU(inplace=True), "gelu": nn.GELU()}[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return self._activate(self.product(x))

    def product(self, x: Tensor) -> Tensor:
        """Map as :meth:`forward` does, without what follows the layer."""
        return F.linear(_rounded(x, self._dtype), self.weight, self.bias)


class PackedLinear(nn.Module):
    """Linear layer by oneDNN, with weights in float32 or bfloat16, with what follows it.

    Inputs and outputs are float32. With bfloat16 weights the inputs are rounded to it, and products summed in float32.
    """

    def __init__(self, linear: nn.Linear, activation: Activation = "none", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self._dtype, self._activation = dtype, activation
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype))
        self._bias = _copied_bias(linear, dtype)
        self._multiply: Any = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return self._multiplied(x, self._activation)

    def product(self, x: Tensor) -> Tensor:
        """Map as :meth:`forward` does, without what follows the layer."""
        return self._multiplied(x, "none")

    def _multiplied(self, x: Tensor, activation: Activation) -> Tensor:
        algorithm = "none" if activation == "gelu" else ""  # by erf, not tanh
        return self._multiply(x.to(self._dtype), self._weight, self._bias, activation, [], algorithm).to(x.dtype)


class Int8Linear(nn.Module):
    """Linear layer with weights of 8 bits (7 without VNNI), each output with a scale of its own.

    Inputs are rounded to 8 bits in every call; outputs are float32. With `by_row` each row of the inputs is scaled to
    the same largest number first, which rounds small rows as finely as large ones. By default one scale serves the
    whole batch, which is faster.
    """

    def __init__(self, linear: nn.Linear, activation: Activation = "none", by_row: bool = False) -> None:
        super().__init__()
        assert not by_row or activation == "none"
        rows, scales = int8_rows(linear.weight.detach())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that its 8-bit tensors will change
            weight = torch._make_per_channel_quantized_tensor(rows, scales, torch.zeros_like(scales).int(), 0)
            bias = _copied_bias(linear, torch.float32)
            self._weight = torch.ops.quantized.linear_prepack(weight, None if by_row else bias)
        self._by_row, self._bias, self._activation = by_row, bias, activation
        self._multiply: Any = torch.ops.quantized.linear_dynamic.default
        self._multiply_relu: Any = torch.ops.quantized.linear_relu_dynamic.default

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if self._activation == "relu":
            return self._multiply_relu(x, self._weight)
        out = self.product(x)
        return F.gelu(out) if self._activation == "gelu" else out

    def product(self, x: Tensor) -> Tensor:
        """Map as :meth:`forward` does, without what follows the layer."""
        if self._by_row:
            largest = x.abs().amax(dim=-1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
            out = self._multiply(x / largest, self._weight).mul_(largest)
            return out if self._bias is None else out.add_(self._bias)
        return self._multiply(x, self._weight)


class Int8Embedding(nn.Module):
    """Embedding with weights of 8 bits, each row with a scale of its own."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.weight.shape
        self._rows, scales = int8_rows(embedding.weight.detach())
        self._scales = scales[:, None].float()

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids in any shape to vectors, (..., D) in float32."""
        return F.embedding(tokens, self._rows).float() * F.embedding(tokens, self._scales)


class VocabularyLinear(nn.Module):
    """The projection without bias to the scores of all words, of which some words can be taken.

    `words` maps ids (W,) to rows of its weight (W, D), and `pack` makes the layer that multiplies of a linear one.
    """

    def __init__(self, linear: nn.Linear, words: nn.Module, pack: Callable[[nn.Linear], nn.Module]) -> None:
        super().__init__()
        self.words, self._pack = words, pack
        self.all = pack(linear)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., vocabulary)."""
        return self.all(x)

    def part(self, words: Tensor) -> nn.Module:
        """Return the projection to some words, given by their ids, (W,)."""
        weight = nn.Parameter(self.words(words), requires_grad=False)
        linear = nn.Linear(weight.size(1), len(weight), bias=False, device="meta")
        linear.weight = weight
        return self._pack(linear)


def _copied_bias(linear: nn.Linear, dtype: torch.dtype) -> Tensor | None:
    """Return the bias in a dtype, in memory of its own: parameters may lie in a file, which others may change."""
    return None if linear.bias is None else linear.bias.detach().to(dtype, copy=True)


def _rounded(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return numbers as near to those given as another type has them; they themselves where it is theirs."""
    return numbers if numbers.dtype == dtype else numbers.to(dtype).to(numbers.dtype)


def int8_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a matrix (O, I) as integers of 8 or 7 bits and what each is multiplied by, (O,) in float64."""
    scales = (weight.abs().amax(dim=1).double() / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scales[:, None]).round().to(torch.int8), scales


def pack(module: Any, dtype: str, embeddings: dict[nn.Module, nn.Module] | None = None) -> None:
    """Replace the layers of a float32 model that multiply tokens by faster ones, on a CPU.

    Energies of positions are left as they are: they are computed once. The model can then be neither trained nor saved.

    Args:
        module: in evaluation mode. It is changed.
        dtype: of weights: ``float32``, ``bf16`` or ``int8``.
        embeddings: those that have been replaced; source, target and output may share one.
    """
    embeddings = {} if embeddings is None else embeddings

    def embedding_of(embedding: nn.Module) -> nn.Module:
        if dtype == "int8" and embedding not in embeddings:
            embeddings[embedding] = Int8Embedding(embedding)
        return embeddings.get(embedding, embedding)

    make = functools.partial(_linear, activation="none", dtype=dtype)
    if isinstance(module, CausalDecoder):
        projection, embedding = module.output_projection, module.embed_tokens
        if projection.weight is not embedding.weight:
            embedding = nn.Embedding.from_pretrained(projection.weight)
        module.output_projection = VocabularyLinear(projection, embedding_of(embedding), make)
    if isinstance(module, FeedForward):
        module.inner = _linear(module.inner, _JOINED.get(module.activation, "none"), dtype)
        module.activation = ACTIVATIONS["linear"] if module.activation in _JOINED else module.activation
    if isinstance(module, TokenMixer) and module.place != "cross" and _is_gelu(module.gating):
        gating = module.gating
        gating.value_proj, gating.gate_proj = (_linear(x, "gelu", dtype) for x in (gating.value_proj, gating.gate_proj))
        gating.activation = ACTIVATIONS["linear"]
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and _multiplies_tokens(module, name):
            # A gate makes the context of some tokens many times as large as that of others.
            gated = isinstance(module, TokenMixer) and name == "out_proj" and _is_gelu(module.gating)
            setattr(module, name, Int8Linear(child, by_row=True) if gated and dtype == "int8" else make(child))
        elif type(child) is nn.Embedding:
            setattr(module, name, embedding_of(child))
        elif not isinstance(child, VocabularyLinear):
            pack(child, dtype, embeddings)


def _multiplies_tokens(module: nn.Module, name: str) -> bool:
    """Return whether a linear layer of a module is called with tokens; mixers may have others, of positions."""
    return name in _PROJECTIONS if isinstance(module, TokenMixer) else not isinstance(module, Energy)


def _is_gelu(gating: object) -> bool:
    return isinstance(gating, Gating) and gating.kind == "gelu"


def _linear(linear: Any, activation: Activation, dtype: str) -> nn.Module:
    if dtype == "int8":
        return Int8Linear(linear, activation)
    # Looked up rather than timed, so that the same command has the same rounding.
    packed = multiplies_bf16() if dtype == "bf16" else torch.backends.mkldnn.is_available()
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    return (PackedLinear if packed else PlainLinear)(linear, activation, kind)
