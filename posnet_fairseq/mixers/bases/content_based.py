"""Base of the mixers whose weights depend on tokens."""

import functools
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops import bucket_attention, kernels
from posnet_fairseq.ops.chunks import in_chunks
from posnet_fairseq.ops.dropout import dropout
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.initialization import ONE_OF_THREE, linear
from posnet_fairseq.ops.masking import normalized
from posnet_fairseq.ops.offsets import scaled


class ContentBasedMixer(TokenMixer):
    """Softmax over energies of tokens: a subclass says what the energy is, and whether it has keys."""

    has_keys: ClassVar[bool] = True

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.scale = self.head_dim**-0.5
        self.query_proj: nn.Module = self._projection(settings, settings.embed_dim)
        if self.has_keys:
            self.key_proj: nn.Module = self._projection(settings, settings.memory_dim)

    @staticmethod
    def _projection(settings: MixerSettings, width: int) -> nn.Linear:
        return linear(width, settings.embed_dim, gain=ONE_OF_THREE, bias=settings.projection_bias)

    def project_queries(self, query: Tensor, context: MixingContext) -> Tensor:
        """Return q_n, (B, H, N, d)."""
        return split_heads(self.query_proj(query), self.num_heads)

    def project_keys(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """Return k_m of the tokens of this call, (B, H, M, d)."""
        return split_heads(self.key_proj(memory), self.num_heads)

    def keys(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """Return k_m of all memory tokens, (B, H, M, d), including those of earlier steps."""
        return self.cached_projection("key", lambda: self.project_keys(memory, context), context)

    def prepare(self, offsets: Any) -> Any:
        """Return the index that :meth:`energy` and :meth:`mix_values` get, made once a call.

        Args:
            offsets: ⌊γn⌋ - m, (N, M), or (1, M) if all queries are hypotheses at one position. On a grid
                :data:`posnet_fairseq.ops.grid.GridOffsets`: those of rows and of columns.
        """
        return offsets

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """Return α̂ before masking.

        Args:
            q: (B, H, N, d), queries already divided by √d.
            k: (B, H, M, d), or None without keys.
            index: what :meth:`prepare` returned.

        Returns:
            A new tensor, (B, H, N, M).
        """
        raise NotImplementedError

    def offset_table(self, q: Tensor) -> Tensor | None:
        """Return what :meth:`energy` adds to q·k for each row of :meth:`prepare`, (B or 1, H, N or 1, T).

        None if it is no such sum. If it is one, and values are those of the tokens, kernels compute :meth:`mix` on
        GPUs, and :mod:`posnet_fairseq.ops.bucket_attention` that of many tokens on a grid.
        """
        return None

    def weights(self, q: Tensor, k: Any, index: Any, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
        """Return α, (B, H, N, M), in float32 at least.

        `hidden`, (N, M) or (B, H or 1, N, M), is True at pairs that are not mixed; or None.
        """
        return normalized(self.energy(q, k, index), padding_mask, hidden)

    def mix_values(self, weights: Tensor, v: Tensor, index: Any) -> Tensor:
        """Return Σ_m α_nm v_m, (B, H, N, d)."""
        return weights @ v

    def part_size(self, energies: int) -> int:
        """Return how many times the usual number of sentences are mixed at once, by the energies of a batch."""
        return 1

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix values with the weights of their energies."""
        q = self.project_queries(query, context) * self.scale
        k = self.keys(memory, context) if self.has_keys else None
        v = self.value(memory, context)
        plain = context.state is None and context.hidden is None and not context.need_weights
        if plain and context.grid is None and kernels.are_used(q):
            mixed = self._mix_by_kernels(q, k, v, context)
            if mixed is not None:
                return mixed, None
        keys = v.size(2)
        queries = 1 if context.beam > 1 else q.size(2)
        offsets = context.offsets(queries, keys, context.first)
        if plain and context.grid is not None and not self.drop_probability:
            of_none = self.offset_table(q[:0])  # None, or as wide as that of all
            if of_none is not None and bucket_attention.is_faster(q, keys, of_none.size(-1)):
                # Contiguous: they are read in blocks, several times, and what they are views of is freed.
                q, k, v = q.contiguous(), cast(Tensor, k).contiguous(), v.contiguous()
                table, index = cast(Tensor, self.offset_table(q)), self.prepare(offsets)
                return bucket_attention.attend(q, k, v, table, index, context.padding_mask), None
        future = offsets < 0 if self.causal and context.state is None else None
        index = self.prepare(offsets)

        # The probability of this call also holds where weights are made again in the backward pass.
        drop = functools.partial(dropout, p=self.drop_probability)

        def weigh(q: Tensor, k: Any, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
            unseen = future if hidden is None else hidden if future is None else hidden | future
            return self.weights(q, k, index, padding_mask, unseen).to(v.dtype)

        def attend(q: Tensor, k: Any, v: Tensor, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
            return self.mix_values(drop(weigh(q, k, padding_mask, hidden)), v, index)

        hidden = None if context.hidden is None else context.hidden.expand(len(q), -1, -1, -1)
        if context.need_weights:
            weights = weigh(q, k, context.padding_mask, hidden)
            return self.mix_values(drop(weights), v, index), weights
        energies = self.num_heads * q.size(2) * keys
        counted = max(1, energies // self.part_size(len(q) * energies))
        recompute = self.should_recompute(keys)
        return in_chunks(attend, (q, k, v, context.padding_mask, hidden), counted, recompute, module=self), None

    def _mix_by_kernels(self, q: Tensor, k: Any, v: Tensor, context: MixingContext) -> Tensor | None:
        from posnet_fairseq.ops.kernels import attention_kernels  # imports triton

        table = self.offset_table(q) if attention_kernels.takes(q) else None
        if table is None:
            return None
        queries, keys, ratio = q.size(2), v.size(2), context.length_ratio
        offsets = torch.arange(1 - keys, scaled(queries - 1, ratio) + 1, device=q.device)
        index = self.prepare(offsets[None])[0]
        settings = context.padding_mask, self.drop_probability, self.causal, ratio
        return attention_kernels.attend(q, k, v, table, index, *settings)
