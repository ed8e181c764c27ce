"""Base of the mixers that have a matrix for every offset."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.bases.mixer_options import Options, option
from posnet_fairseq.mixers.bases.mixer_settings import MixerSettings
from posnet_fairseq.ops import offset_matmul
from posnet_fairseq.ops.heads import merge_heads, split_heads
from posnet_fairseq.ops.initialization import ONE_OF_THREE
from posnet_fairseq.shared import errors

# Of one projection of a layer: 8 GiB in float32.
MOST_NUMBERS = 2**31


@dataclass
class OffsetOptions(Options):
    """Which offsets, layers and projections have matrices of their own."""

    translution_clip: int | None = option(
        "K: offsets of K and more to one side share one matrix (Translution Section 5); in language models every "
        "offset has its own by default, as in the paper's Eq. 1",
        default=None,
        reach=True,
    )
    translution_layers: int | None = option(
        "number of layers, from the first, that have matrices of offsets; the others have attention (Translution "
        "Section 5); left out, all layers have them",
        default=None,
        first_layers=True,
    )
    translution_on: Literal["qkv", "qk", "qv", "kv", "q", "k", "v"] = option(
        "what depends on the offset: queries, keys, values; the others are ordinary (Translution Eq. 1)",
        default="qkv",
    )


class OffsetMatrices(nn.Module):
    """W^Q_δ, W^K_δ, W^V_δ of tokens of the width C: Translution (Fan et al., 2025) Eq. 1 and App. C."""

    def __init__(self, settings: MixerSettings, width: int) -> None:
        super().__init__()
        self.num_heads, self.causal = settings.num_heads, settings.place == "decoder"
        # K of the offset, on a grid those of rows and of columns.
        self.reaches, rows = _reaches_and_rows(settings)
        self.shape = () if settings.grid is None else (*settings.grid, settings.extra_tokens)
        self.queries, self.keys, self.values = (
            _matrices(rows, width) if letter in settings.options.translution_on else None for letter in "qkv"
        )

    def energy(self, q: Tensor, k: Tensor) -> Tensor:
        """Return q_nm · k_nm of queries and keys (B, H, N, c): (B, H, N, N); of the last query alone, (B, H, 1, M)."""
        if self.queries is None and self.keys is None:
            return q @ k.mT
        tensors = (q := _time_first(q)), self.queries, (k := _time_first(k)), self.keys
        if len(q) < len(k):
            return offset_matmul.energies_of_step(*tensors, self.num_heads, self.reaches[-1])
        return offset_matmul.energies(*tensors, self.num_heads, self.reaches, self.causal, self.shape)

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        """Return Σ_m α_nm v_nm of values (B, H, N, c), (B, H, N, c)."""
        if self.values is None:
            return weights @ v
        v = _time_first(v)
        if weights.size(2) < len(v):
            mixed = offset_matmul.mixture_of_step(weights, v, self.values, self.reaches[-1])
        else:
            mixed = offset_matmul.mixture(weights, v, self.values, self.reaches, self.causal, self.shape)
        return split_heads(mixed.transpose(0, 1), self.num_heads)


def _reaches_and_rows(settings: MixerSettings) -> tuple[tuple[int, ...], int]:
    """Return K, on a grid of both directions, and how many offsets have matrices; a decoder has none to the right."""
    # No two tokens of a sentence stand L or more apart.
    clip = settings.options.translution_clip
    if settings.grid is not None:
        rows, columns = (min(clip or size, size - 1) for size in settings.grid)
        # Of the three kinds of pairs with an extra token, each has a matrix.
        return (rows, columns), (2 * rows + 1) * (2 * columns + 1) + 3 * (settings.extra_tokens > 0)
    reach = clip or max(1, settings.max_positions - 1)
    return (reach,), reach + 1 if settings.place == "decoder" else 2 * reach + 1


def _matrices(rows: int, width: int) -> nn.Parameter:
    matrices = torch.empty(rows, width, width)
    for matrix in matrices:
        nn.init.xavier_uniform_(matrix, gain=ONE_OF_THREE)
    return nn.Parameter(matrices)


def _time_first(x: Tensor) -> Tensor:
    """Return (B, H, N, c) as (N, B, C)."""
    return merge_heads(x).transpose(0, 1).contiguous()


class OffsetMixer(ContentBasedMixer):
    """Self-attention with matrices of offsets, in all layers of a side or in the first ones.

    Words get no position embedding: Translution App. F finds that it hurts; ``--position-embedding`` adds one.
    """

    Config = OffsetOptions
    GridConfig = OffsetOptions
    places = ("encoder", "decoder")
    position_embedding = "none"

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        self.matrices = OffsetMatrices(settings, self.matrix_width(settings))

    @classmethod
    def matrix_width(cls, settings: MixerSettings) -> int:
        """Return C, of the tokens that matrices of offsets are applied to."""
        return settings.embed_dim

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Refuse matrices of offsets that do not fit into memory."""
        (_, rows), width = _reaches_and_rows(settings), cls.matrix_width(settings)
        if rows * width**2 > MOST_NUMBERS:
            given = settings.options.translution_clip or "left out"
            narrower = f"{settings.place}_embed_dim" if width == settings.embed_dim else "alpha_dim"
            raise errors.UsageError(
                f"{errors.option('translution_clip')} {given}: {rows} matrices of {width} × {width} in a layer are "
                f"more than {MOST_NUMBERS} numbers. Choose a smaller clip or {errors.option(narrower)}."
            )

    def part_size(self, energies: int) -> int:
        """Return 4, because every part of a batch repeats the products of all offsets, or all.

        The whole batch is one part if the matrices have more numbers than the energies: every part makes gradients of
        all matrices.
        """
        return 4 if sum(matrix.numel() for matrix in self.matrices.parameters()) < energies else max(1, energies)
