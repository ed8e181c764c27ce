"""Which layers of a model are replaced, and by what; among them values and gate of self-attention by one product."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from posnet_fairseq.inference.packing.linears import (
    Activation,
    Int8Embedding,
    Int8Linear,
    PackedLinear,
    PlainLinear,
    VocabularyLinear,
)
from posnet_fairseq.mixers.bases.energies import Energy
from posnet_fairseq.mixers.bases.gating import Gating
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.linear import multiplies_bf16
from posnet_fairseq.transformer.activations import ACTIVATIONS
from posnet_fairseq.transformer.causal import CausalDecoder
from posnet_fairseq.transformer.layers import FeedForward

# Activations that a linear layer computes with its products.
_JOINED: dict[Callable, Activation] = {ACTIVATIONS["relu"]: "relu", ACTIVATIONS["gelu"]: "gelu"}
_PROJECTIONS = ("query_proj", "key_proj", "out_proj")


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
        module.gating = JoinedGating(module.gating, functools.partial(_linear, activation="gelu", dtype=dtype))
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and _multiplies_tokens(module, name):
            # A gate makes the context of some tokens many times as large as that of others.
            gated = isinstance(module, TokenMixer) and name == "out_proj" and _is_gelu(module.gating)
            setattr(module, name, Int8Linear(child, by_row=True) if gated and dtype == "int8" else make(child))
        elif type(child) is nn.Embedding:
            setattr(module, name, embedding_of(child))
        elif not isinstance(child, VocabularyLinear | JoinedGating):
            pack(child, dtype, embeddings)


def _multiplies_tokens(module: nn.Module, name: str) -> bool:
    """Return whether a linear layer of a module is called with tokens; mixers may have others, of positions."""
    return name in _PROJECTIONS if isinstance(module, TokenMixer) else not isinstance(module, Energy)


def _is_gelu(gating: object) -> bool:
    return isinstance(gating, Gating | JoinedGating) and gating.kind == "gelu"


def _linear(linear: Any, activation: Activation, dtype: str) -> nn.Module:
    if dtype == "int8":
        return Int8Linear(linear, activation)
    # Looked up rather than timed, so that the same command has the same rounding.
    packed = multiplies_bf16() if dtype == "bf16" else torch.backends.mkldnn.is_available()
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    return (PackedLinear if packed else PlainLinear)(linear, activation, kind)


class JoinedGating(nn.Module):
    """The ``gelu`` gate of self-attention, whose values and gate are of the same tokens, by one product with GELU."""

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
