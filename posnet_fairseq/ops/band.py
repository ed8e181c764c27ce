"""Mixing with weights of clipped offsets, in time that grows linearly with the number of tokens.

Beyond a distance R all tokens on one side of a query have one weight, or none. Queries are grouped into blocks by the
S ≥ 2R tokens at which they stand. All tokens up to R away from a block are in a window of 2S tokens; those farther away
enter as two sums, one for each side, computed once for all blocks: N·(2S + 2) products per feature instead of N·M.
"""

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.band_products import BandProducts
from posnet_fairseq.ops.offsets import scaled

# Blocks of fewer tokens make products too small to be fast; measured in docs/measurements.md.
SMALLEST_BLOCK = 32
# From this number of blocks on it is faster than a product with all tokens; measured there too.
FEWEST_BLOCKS = 6


@dataclass(frozen=True)
class Band:
    """The offsets ⌊γn⌋ - m that have a weight of their own.

    Attributes:
        clip_distance: R.
        tails: True if offsets beyond ±R have the weights of ±R, False if they have none.
        causal: whether queries must not see the tokens that follow them.
    """

    clip_distance: int
    tails: bool
    causal: bool

    @property
    def block_size(self) -> int:
        """S, the number of tokens in a block."""
        return max(SMALLEST_BLOCK, 2 * self.clip_distance)

    def is_faster(self, queries: int, keys: int) -> bool:
        """Return whether, for N queries and M keys, :func:`mix_band` is faster than a product with all tokens."""
        return min(queries, keys) >= FEWEST_BLOCKS * self.block_size

    def hidden(self, offsets: Tensor) -> Tensor | None:
        """Return a mask that is True at offsets, of any shape, that are not mixed; None if all are."""
        future = offsets < 0 if self.causal else None
        if self.tails:
            return future
        outside = offsets.abs() > self.clip_distance
        return outside if future is None else outside | future

    def counts(
        self,
        queries: int,
        keys: int | Tensor,
        length_ratio: tuple[int, int] = (1, 1),
        device: torch.device | None = None,
    ) -> Tensor:
        """Return the number of tokens at each clipped offset, from -R to R, of each query, (N, 2R + 1).

        `keys` is M, or (B, 1, 1) with one M for each sentence, for a result (B, N, 2R + 1).
        """
        at = scaled(torch.arange(queries, device=device), length_ratio)[:, None]
        offsets = torch.arange(-self.clip_distance, self.clip_distance + 1, device=device)
        number = ((at >= offsets) & (at - offsets < keys)).long()
        if self.tails:
            left = (at - self.clip_distance + 1).clamp(min=0).clamp(max=keys)
            right = keys - (at + self.clip_distance).clamp(min=0).clamp(max=keys)
            number = torch.cat([right, number[..., 1:-1], left], dim=-1)
        return number.masked_fill(offsets < 0, 0) if self.causal else number


def mix_band(weights: Tensor, value: Tensor, band: Band, length_ratio: tuple[int, int] = (1, 1)) -> Tensor:
    """Return Σ_m weights[n, clip(⌊γn⌋ - m, ±R) + R] · value[m].

    The sum is over all m, in a band without tails over |⌊γn⌋ - m| ≤ R.

    Args:
        weights: (H, N, 2R + 1), for all sentences; 0 at hidden offsets.
        value: (B, H, M, d).
        band: the offsets that have weights.
        length_ratio: γ as (source tokens, target tokens).

    Returns:
        (B, H, N, d). Sums of many tokens are taken in float32 or wider.
    """
    batch, heads, keys, width = value.shape
    # Queries whose tokens are all more than R behind are in no block: blocks would grow with γ.
    source, target = length_ratio
    queries, size = min(weights.size(1), -(-(keys + band.clip_distance) * target // source)), band.block_size
    weights, beyond = weights.split([queries, weights.size(1) - queries], dim=1)
    place, rows, in_order = _in_blocks(queries, size, length_ratio, value.device)
    blocks, of_block = rows.shape
    # The window of a block begins R tokens before it. With all tokens moved on by R it is two whole blocks.
    behind = max((blocks + 1) * size - band.clip_distance - keys, -(band.clip_distance + keys) % size)
    padded = F.pad(value.permute(1, 2, 0, 3), (0, 0, 0, 0, band.clip_distance, behind))
    columns = padded.flatten(2).unflatten(1, (-1, size))
    empty = weights.new_zeros(heads, blocks * of_block, weights.size(2))
    weights = empty.index_copy(1, place, weights).unflatten(1, (blocks, of_block))
    with torch.autocast(value.device.type, enabled=False):
        mixed = BandProducts.apply(weights, columns, rows, band.tails).flatten(1, 2)
    mixed = mixed[:, :queries] if in_order else mixed.index_select(1, place)
    mixed = mixed.unflatten(2, (batch, width)).permute(2, 0, 1, 3)
    if not beyond.size(1):
        return mixed
    sums = value.sum(dim=2, keepdim=True, dtype=torch.promote_types(value.dtype, torch.float32))
    return torch.cat([mixed, (beyond[..., -1:] * (sums if band.tails else 0 * sums)).to(mixed.dtype)], dim=2)


def _in_blocks(
    queries: int, size: int, length_ratio: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor, bool]:
    """Assign queries to blocks by the token at which they stand, ⌊γn⌋.

    Returns (N,), the place of each query; (blocks, Q), the position inside its block of the query at each place; and
    whether each query's place is its number.
    """
    source, target = length_ratio
    blocks = scaled(queries - 1, length_ratio) // size + 1
    # The first query of each block: the smallest n with ⌊γn⌋ of `size` times its number or more.
    first = [min(queries, -(-block * size * target // source)) for block in range(blocks + 1)]
    of_block = max(end - begin for begin, end in itertools.pairwise(first))
    n = torch.arange(queries, device=device)
    at = scaled(n, length_ratio)
    block = at // size
    place = n + block * of_block - -(-block * size * target // source)
    rows = torch.zeros(blocks * of_block, dtype=torch.long, device=device).index_copy(0, place, at % size)
    return place, rows.view(-1, of_block), first[-2] == (blocks - 1) * of_block
