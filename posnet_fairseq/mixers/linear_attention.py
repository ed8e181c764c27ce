"""Linear attention: products of positive features in the place of the softmax."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.mixers.bases import Mixed, MixerSettings, MixingContext, TokenMixer
from posnet_fairseq.mixers.bases.recurrent import advance_state
from posnet_fairseq.ops.dtypes import in_float, without_autocast
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.initialization import ONE_OF_THREE, linear
from posnet_fairseq.ops.recurrence import Terms, recur
from posnet_fairseq.registry import register_mixer

# Added to the sum of weights, as in the published code.
EPSILON = 1e-6


@register_mixer("linear_attention")
class LinearAttention(TokenMixer):
    """α_nm = φ(q_n)·φ(k_m) / Σ_l φ(q_n)·φ(k_l), φ(x) = elu(x) + 1: Katharopoulos et al. (ICML 2020) Eqs. 4-9.

    Time grows linearly with the number of tokens, and the state of decoding has a constant size, in cross-attention as
    well: Σ φ(k_m) v_mᵀ and Σ φ(k_m). Weights, which are not computed, are not dropped out.
    """

    operations_formula = "2NDd + 4ND²"
    hides_pairs = False
    drops_weights = False
    constant_state = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.query_proj, self.key_proj = (
            linear(width, self.embed_dim, gain=ONE_OF_THREE, bias=settings.projection_bias)
            for width in (settings.embed_dim, settings.memory_dim)
        )

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Multiply queries with sums over the memory, in the decoder over the tokens so far."""
        q, (k, v) = self._features(self.query_proj(query)), self._keys_and_values(memory, context)
        with without_autocast(q):  # sums over many tokens are beyond float16
            return self._mix_all(q, k, v, context) if context.state is None else self._step(q, k, v, context)

    def _step(self, q: Tensor, k: Any, v: Any, context: MixingContext) -> Mixed:
        state, weights = context.state, None
        assert state is not None
        if self.place == "cross":
            matrix = state.get_or_create("matrix", lambda: in_float(k.mT) @ in_float(v))
            keys = state.get_or_create("keys", lambda: in_float(k).sum(dim=2, keepdim=True))
            mixed = in_float(q) @ matrix
            if context.need_weights:  # for these, all keys are remembered
                weights = _normalized(in_float(q @ state.get_or_create("features", lambda: k).mT), q, keys)
        else:
            keys = state.get_or_create("keys", lambda: in_float(torch.zeros_like(k)))
            state.rows["keys"] = keys + k
            mixed = advance_state(state, Terms(q, k, in_float(v)))
        return _normalized(mixed, q, state.rows["keys"]).to(q.dtype), weights

    def _mix_all(self, q: Tensor, k: Tensor, v: Tensor, context: MixingContext) -> Mixed:
        weights = None
        if self.causal:
            mixed, keys = recur(Terms(in_float(q), in_float(k), in_float(v))), in_float(k).cumsum(dim=2)
        else:
            mixed, keys = in_float(q) @ (in_float(k).mT @ in_float(v)), in_float(k).sum(dim=2, keepdim=True)
        if context.need_weights:
            weights = in_float(q @ k.mT)
            weights = _normalized(weights.tril() if self.causal else weights, q, keys)
        return _normalized(mixed, q, keys).to(v.dtype), weights

    def _features(self, projected: Tensor) -> Tensor:
        """Return φ of (B, N, D), (B, H, N, d)."""
        return split_heads((F.elu(in_float(projected)) + 1).to(projected.dtype), self.num_heads)

    def _keys_and_values(self, memory: Tensor | None, context: MixingContext) -> tuple[Any, Any]:
        """Return φ(k_m), zeros at padding, and v_m, (B, H, M, d); None in later steps of cross-attention."""
        if memory is None:
            return None, None
        keys = self._features(self.key_proj(memory))
        if context.padding_mask is not None:
            keys = keys.masked_fill(context.padding_mask[:, None, :, None], 0)
        return keys, self.project_values(memory)


def _normalized(mixed: Tensor, q: Tensor, keys: Tensor) -> Tensor:
    """Return sums (B, H, N, any) divided by those of their weights, φ(q_n)·`keys`, (B, H, N or 1, d)."""
    total = (in_float(q) * keys).sum(dim=-1, keepdim=True)
    # Of padding alone: gradients by a divisor as small as EPSILON would not be finite in float16.
    return mixed / (total + EPSILON).masked_fill(total == 0, 1)
