"""Base of the mixers whose weights depend on tokens."""

import functools

import torch.nn.functional as F
from torch import nn

from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.chunks import in_chunks
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.initialisation import ONE_OF_THREE, linear
from posnet_fairseq.ops.masking import normalized


class ContentBasedMixer(TokenMixer):
    """Softmax over energies of tokens: a subclass says what the energy is.

    Class attributes:
        has_keys: whether there is a key projection.
    """

    has_keys = True

    def __init__(self, settings):
        super().__init__(settings)
        self.scale = self.head_dim**-0.5
        self.query_proj = self._projection(settings, settings.embed_dim)
        if self.has_keys:
            self.key_proj = self._projection(settings, settings.memory_dim)

    @staticmethod
    def _projection(settings, width):
        return linear(width, settings.embed_dim, gain=ONE_OF_THREE, bias=settings.projection_bias)

    def project_queries(self, query, context):
        """q_n, (B, H, N, d)."""
        return split_heads(self.query_proj(query), self.num_heads)

    def project_keys(self, memory, context):
        """k_m of the tokens of this call, (B, H, M, d)."""
        return split_heads(self.key_proj(memory), self.num_heads)

    def keys(self, memory, context):
        """k_m of all memory tokens, (B, H, M, d), those of earlier steps included."""
        return self.of_memory("key", lambda: self.project_keys(memory, context), context)

    def prepare(self, offsets):
        """What :meth:`energy` and :meth:`mix_values` want to know of the offsets ⌊γn⌋ - m: once a call.

        They are (N, M), or (1, M) if all queries are hypotheses at one position.
        """
        return offsets

    def energy(self, q, k, index):
        """α̂ before masking.

        Args:
            q: (B, H, N, d), queries already divided by √d.
            k: (B, H, M, d), or None without keys.
            index: what :meth:`prepare` returned.

        Returns:
            A new tensor, (B, H, N, M).
        """
        raise NotImplementedError

    def weights(self, q, k, index, padding_mask, future):
        """α, (B, H, N, M), in float32 at least. `future` is True where a key lies after its query, or None."""
        return normalized(self.energy(q, k, index), padding_mask, future)

    def mix_values(self, weights, v, index):
        """Σ_m α_nm v_m, (B, H, N, d)."""
        return weights @ v

    def part_size(self, energies):
        """How many times the usual number of sentences are mixed at once, of a batch with so many energies."""
        return 1

    def mix(self, query, memory, context):
        """Values mixed with the weights of their energies."""
        q = self.project_queries(query, context) * self.scale
        k = self.keys(memory, context) if self.has_keys else None
        v = self.value(memory, context)
        keys = v.size(2)
        queries = 1 if context.hypotheses > 1 else q.size(2)
        offsets = context.offsets(queries, keys, q.device)
        future = offsets < 0 if self.causal and context.state is None else None
        index = self.prepare(offsets)

        # As it is now, also where weights are made again in the backward pass.
        drop = functools.partial(F.dropout, p=self.drop_probability)

        def weigh(q, k, padding_mask):
            return self.weights(q, k, index, padding_mask, future).to(v.dtype)

        def attend(q, k, v, padding_mask):
            return self.mix_values(drop(weigh(q, k, padding_mask)), v, index)

        if context.need_weights:
            weights = weigh(q, k, context.padding_mask)
            return self.mix_values(drop(weights), v, index), weights
        energies = self.num_heads * q.size(2) * keys
        counted = max(1, energies // self.part_size(len(q) * energies))
        recompute = self.outweighs(keys)
        return in_chunks(attend, (q, k, v, context.padding_mask), counted, recompute, module=self), None

    def projection_operations(self, size: MixingSize) -> float:
        """Multiplications of the projections of queries, keys and values, of gate and output."""
        queries = size.queries if isinstance(self.query_proj, nn.Linear) else 0
        keys = size.keys if self.has_keys and isinstance(self.key_proj, nn.Linear) else 0
        return super().projection_operations(size) + (queries + keys) * size.embed_dim**2

    def attention_operations(self, size: MixingSize) -> float:
        """Multiplications of all projections, of queries with keys if there are any, and of weights with values."""
        return self.projection_operations(size) + (1 + self.has_keys) * size.queries * size.keys * size.embed_dim
