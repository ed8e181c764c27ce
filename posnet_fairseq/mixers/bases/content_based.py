"""Base of the mixers whose weights depend on tokens."""

import functools
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.context import Mixed, MixingContext
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops import bucket_attention, kernels
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.chunks import in_chunks
from posnet_fairseq.ops.dropout import dropout
from posnet_fairseq.ops.grid import Grid
from posnet_fairseq.ops.heads import split_heads
from posnet_fairseq.ops.initialization import ONE_OF_THREE, linear
from posnet_fairseq.ops.masking import normalized
from posnet_fairseq.ops.offset_gather import gather_by_offset, key_energy, plus_products, sum_by_offset
from posnet_fairseq.ops.offsets import scaled


class ContentBasedMixer(TokenMixer):
    """Softmax over energies of tokens: a subclass says what the energy is, and whether it has keys.

    Attributes:
        buckets: which row of its tables pairs use, if :meth:`prepare` returns that.
    """

    has_keys: ClassVar[bool] = True
    buckets: Buckets | None = None

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
        """Return the index that :meth:`energy` and :meth:`mix_values` get, made once a call; by default `buckets`'.

        Args:
            offsets: ⌊γn⌋ - m, (N, M), or (1, M) if all queries are hypotheses at one position. On a grid
                :data:`posnet_fairseq.ops.grid.GridOffsets`: those of rows and of columns.
        """
        return offsets if self.buckets is None else self.buckets.index(offsets)

    def of_tokens(self, memory: Tensor | None, context: MixingContext) -> Tensor | None:
        """Return what :meth:`energy` reads of all tokens beside queries and keys, (B, ...), such as gates; or None."""
        return None

    def offset_table(self, q: Tensor) -> Tensor | None:
        """Return what queries add to energies for each row of :meth:`prepare`, (B or 1, H, N or 1, T)."""
        return None

    def key_vectors(self) -> Tensor | None:
        """Return vectors that keys are multiplied with for each row, divided by √d then, (H or 1, T, d)."""
        return None

    def value_vectors(self) -> Tensor | None:
        """Return vectors that are added to values for each row, (H or 1, T, d)."""
        return None

    def energy(self, q: Tensor, k: Any, index: Any) -> Tensor:
        """Return α̂ before masking: by default q·k plus what queries and keys have for rows.

        If a subclass keeps it, :meth:`weights` and :meth:`mix_values`, kernels compute :meth:`mix` on GPUs, and
        :mod:`posnet_fairseq.ops.bucket_attention` that of many tokens on a grid.

        Args:
            q: (B, H, N, d), queries already divided by √d.
            k: (B, H, M, d), or None without keys.
            index: what :meth:`prepare` returned; if :meth:`of_tokens` returns a tensor, a pair of the two.

        Returns:
            A new tensor, (B, H, N, M).
        """
        table, vectors = self.offset_table(q), self.key_vectors()
        energy = None if table is None else gather_by_offset(table.expand(-1, -1, q.size(2), -1), index)
        if vectors is not None:
            of_keys = key_energy(k, vectors * self.scale, index)
            energy = of_keys if energy is None else energy + of_keys
        return q @ k.mT if energy is None else plus_products(energy, q, k)

    def weights(self, q: Tensor, k: Any, index: Any, padding_mask: Tensor | None, hidden: Tensor | None) -> Tensor:
        """Return α, (B, H, N, M), in float32 at least.

        `hidden`, (N, M) or (B, H or 1, N, M), is True at pairs that are not mixed; or None.
        """
        return normalized(self.energy(q, k, index), padding_mask, hidden)

    def mix_values(self, weights: Tensor, v: Tensor, index: Any) -> Tensor:
        """Return Σ_m α_nm v_m, (B, H, N, d), with what values have for rows."""
        vectors = self.value_vectors()
        if vectors is None:
            return weights @ v
        return weights @ v + sum_by_offset(weights, index, vectors.size(1)) @ vectors

    def part_size(self, energies: int) -> int:
        """Return how many times the usual number of sentences are mixed at once, by the energies of a batch."""
        return 1

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix values with the weights of their energies."""
        q = self.project_queries(query, context) * self.scale
        k = self.keys(memory, context) if self.has_keys else None
        v, of_tokens = self.value(memory, context), self.of_tokens(memory, context)
        plain = context.state is None and context.hidden is None and not context.need_weights and self._is_usual()
        if plain and context.grid is None and kernels.are_used(q):
            mixed = self._mix_by_kernels(q, k, v, context)
            if mixed is not None:
                return mixed, None
        keys = v.size(2)
        queries = 1 if context.beam > 1 else q.size(2)
        offsets = context.offsets(queries, keys, context.first)
        if plain and context.grid is not None and not self.drop_probability:
            mixed = self._mix_by_buckets(q, k, v, offsets, context)
            if mixed is not None:
                return mixed, None
        future = offsets < 0 if self.causal and context.state is None else None
        index = self.prepare(offsets)

        # The probability of this call also holds where weights are made again in the backward pass.
        drop = functools.partial(dropout, p=self.drop_probability)

        def weigh(
            q: Tensor, k: Any, of_tokens: Tensor | None, padding_mask: Tensor | None, hidden: Tensor | None
        ) -> Tensor:
            unseen = future if hidden is None else hidden if future is None else hidden | future
            read = index if of_tokens is None else (index, of_tokens)
            return self.weights(q, k, read, padding_mask, unseen).to(v.dtype)

        def attend(q: Tensor, k: Any, v: Tensor, *others: Tensor | None) -> Tensor:
            return self.mix_values(drop(weigh(q, k, *others)), v, index)

        others = of_tokens, context.padding_mask, context.hidden
        if context.need_weights:
            weights = weigh(q, k, *others)
            return self.mix_values(drop(weights), v, index), weights
        energies = self.num_heads * q.size(2) * keys
        counted = max(1, energies // self.part_size(len(q) * energies))
        recompute = self.should_recompute(keys)
        return in_chunks(attend, (q, k, v, *others), counted, recompute, module=self), None

    def _is_usual(self) -> bool:
        """Return whether no subclass mixes in another way than this class: kernels and buckets compute what it does."""
        own, usual = type(self), ContentBasedMixer
        is_usual = own.energy is usual.energy and own.weights is usual.weights
        return is_usual and own.mix_values is usual.mix_values

    def _mix_by_kernels(self, q: Tensor, k: Any, v: Tensor, context: MixingContext) -> Tensor | None:
        from posnet_fairseq.ops.kernels import attention_kernels  # imports triton

        if not attention_kernels.takes(q) or self.key_vectors() is not None or self.value_vectors() is not None:
            return None
        table = self.offset_table(q)
        if table is None:
            return None
        queries, keys, ratio = q.size(2), v.size(2), context.length_ratio
        offsets = torch.arange(1 - keys, scaled(queries - 1, ratio) + 1, device=q.device)
        index = self.prepare(offsets[None])[0]
        settings = context.padding_mask, self.drop_probability, self.causal, ratio
        return attention_kernels.attend(q, k, v, table, index, *settings)

    def _mix_by_buckets(self, q: Tensor, k: Any, v: Tensor, offsets: Any, context: MixingContext) -> Tensor | None:
        of_none, of_keys, of_values = self.offset_table(q[:0]), self.key_vectors(), self.value_vectors()
        counts = [x.size(i) for x, i in ((of_none, -1), (of_keys, -2), (of_values, -2)) if x is not None]
        if not counts or not bucket_attention.is_faster(q, v.size(2), counts[0]):
            return None
        index, grid = self.prepare(offsets), cast(Grid, context.grid)
        of_keys = None if of_keys is None else of_keys * self.scale
        of_queries = self.offset_table(q)
        return bucket_attention.attend(q, k, v, of_queries, of_keys, of_values, index, grid, context.padding_mask)
