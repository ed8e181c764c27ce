"""Mixing whose weights are those of clipped offsets, in time that grows with the number of tokens.

Beyond a distance R all tokens on one side of a query have one weight, or none. Queries are taken in blocks, those that
stand at the same S ≥ 2R tokens. All tokens within reach of a block are in a window of 2S tokens; those farther away
enter as two sums, one for each side, that are made once for all blocks: N·(2S + 2) products for each feature, not N·M.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from posnet_fairseq.ops.derivatives import twice_differentiable
from posnet_fairseq.ops.offsets import scaled

# Blocks of fewer tokens make products too small to be fast; measured in docs/measurements.md.
SMALLEST_BLOCK = 32
# From so many blocks on it is faster than a product with all tokens; measured there too.
FEWEST_BLOCKS = 6


@dataclass(frozen=True)
class Band:
    """Which offsets ⌊γn⌋ - m have a weight of their own.

    Attributes:
        clip_distance: R.
        tails: whether offsets beyond ±R have the weights of ±R, or none.
        causal: whether queries must not see what follows them.
    """

    clip_distance: int
    tails: bool
    causal: bool

    @property
    def block_size(self):
        """S, the tokens in a block."""
        return max(SMALLEST_BLOCK, 2 * self.clip_distance)

    def is_faster(self, queries, keys):
        """Whether so many queries and keys are mixed faster by :func:`mix_band` than by :func:`mix_static`."""
        return min(queries, keys) >= FEWEST_BLOCKS * self.block_size

    def hidden(self, offsets):
        """True at offsets that are not mixed; None if all are."""
        future = offsets < 0 if self.causal else None
        if self.tails:
            return future
        outside = offsets.abs() > self.clip_distance
        return outside if future is None else outside | future

    def counts(self, queries, keys, length_ratio=(1, 1), device=None):
        """How many tokens stand at each clipped offset of each query.

        Args:
            queries: N.
            keys: M, or (B, 1, 1), those of each sentence.
            length_ratio: γ as source, target.
            device: of the result.

        Returns:
            (N, 2R + 1), or (B, N, 2R + 1); columns are the offsets from -R to R.
        """
        at = scaled(torch.arange(queries, device=device), length_ratio)[:, None]
        keys = torch.as_tensor(keys, device=device)
        offsets = torch.arange(-self.clip_distance, self.clip_distance + 1, device=device)
        number = ((at >= offsets) & (at - offsets < keys)).long()
        if self.tails:
            left = (at - self.clip_distance + 1).clamp(min=0).minimum(keys)
            right = keys - (at + self.clip_distance).clamp(min=0).minimum(keys)
            number = torch.cat([right, number[..., 1:-1], left], dim=-1)
        return number.masked_fill(offsets < 0, 0) if self.causal else number


@dataclass(frozen=True)
class BandWeights:
    """Weights of clipped offsets that all sentences share.

    Attributes:
        band: a :class:`Band`.
        length_ratio: γ as source, target.
        weights: (H, N, 2R + 1), 0 at offsets that are hidden.
    """

    band: Band
    length_ratio: tuple[int, int]
    weights: Tensor

    @classmethod
    def softmax(cls, band, length_ratio, energy, keys):
        """Weights that sum to 1 over the tokens of a sentence, in float32 at least.

        Args:
            band, length_ratio: as above.
            energy: (H, N, 2R + 1).
            keys: tokens of the sentence.
        """
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        number = band.counts(energy.size(1), keys, length_ratio, energy.device).to(energy.dtype)
        return cls(band, length_ratio, (energy + number.log()).softmax(dim=-1) / number.clamp(min=1))

    @classmethod
    def plain(cls, band, length_ratio, weights, keys):
        """Weights as they are, 0 at offsets that are hidden. Arguments as for :meth:`softmax`."""
        number = band.counts(weights.size(1), keys, length_ratio, weights.device)
        return cls(band, length_ratio, weights.masked_fill(number == 0, 0))

    def part(self, padding_mask):
        """How much of each query's weight is on real tokens: (B, H, N) for a mask (B, M), True at padding."""
        lengths = (~padding_mask).sum(dim=1)[:, None, None]
        number = self.band.counts(self.weights.size(1), lengths, self.length_ratio, self.weights.device)
        return torch.einsum("hnj,bnj->bhn", self.weights, number.to(self.weights.dtype))

    def mix(self, value):
        """Weighted sums of values (B, H, M, d), as :func:`mix_band`."""
        return mix_band(self.weights, value, self.band, self.length_ratio)


def mix_band(weights, value, band, length_ratio=(1, 1)):
    """Σ_m weights[n, clip(⌊γn⌋ - m, ±R) + R] · value[m], over all m or over |⌊γn⌋ - m| ≤ R in a band without tails.

    Args:
        weights: (H, N, 2R + 1), for all sentences; 0 at offsets that are hidden.
        value: (B, H, M, d).
        band: a :class:`Band`.
        length_ratio: γ as source, target.

    Returns:
        (B, H, N, d). Sums of many tokens are taken in float32 at least.
    """
    batch, heads, keys, width = value.shape
    queries, size = weights.size(1), band.block_size
    place, rows = _in_blocks(queries, size, length_ratio)
    blocks, of_block = rows.shape
    # The window of a block begins R tokens before it. With all tokens moved on by R it is two whole blocks.
    behind = max((blocks + 1) * size - band.clip_distance - keys, -(band.clip_distance + keys) % size)
    padded = F.pad(value.permute(1, 2, 0, 3), (0, 0, 0, 0, band.clip_distance, behind))
    columns = padded.flatten(2).unflatten(1, (-1, size))
    empty = weights.new_zeros(heads, blocks * of_block, weights.size(2))
    in_order = int(place[-1]) == queries - 1
    place, rows = place.to(value.device), rows.to(value.device)
    weights = empty.index_copy(1, place, weights).unflatten(1, (blocks, of_block))
    with torch.autocast(value.device.type, enabled=False):
        mixed = _Band.apply(weights, columns, rows, band.tails).flatten(1, 2)
    mixed = mixed[:, :queries] if in_order else mixed.index_select(1, place)
    return mixed.unflatten(2, (batch, width)).permute(2, 0, 1, 3)


def _in_blocks(queries, size, length_ratio):
    """How queries are put into blocks by the tokens where they stand, ⌊γn⌋.

    Returns:
        (N,), the place of each query, and (blocks, Q), where in its block the query of a place stands.
    """
    n = torch.arange(queries)
    at = scaled(n, length_ratio)
    block = at // size
    number = block.bincount()
    of_block = int(number.max())
    place = block * of_block + n - (number.cumsum(0) - number)[block]
    rows = torch.zeros(len(number) * of_block, dtype=torch.long).index_copy(0, place, at % size)
    return place, rows.view(-1, of_block)


def _formula(weights, columns, rows, tails):
    """What :class:`_Band` computes, in operations with derivatives."""
    blocks = len(rows)
    near = _near(weights.to(columns.dtype), rows, columns.size(2), tails)
    mixed = near @ torch.cat([columns[:, :blocks], columns[:, 1 : blocks + 1]], dim=2)
    if not tails:
        return mixed
    far = _far(columns, blocks)
    return (mixed + _outermost(weights).to(far.dtype) @ far).to(columns.dtype)


class _Band(torch.autograd.Function):
    """Blocks of queries times windows of tokens.

    Weights (H, blocks, Q, 2R + 1) in float32 at least: the gradient of a tail's is a sum over all its tokens. Columns
    (H, at least blocks + 1, S, C), rows (blocks, Q).
    """

    @staticmethod
    def forward(ctx, weights, columns, rows, tails):
        ctx.settings = (tails,)
        ctx.save_for_backward(weights, columns, rows)
        near = _near(weights.to(columns.dtype), rows, columns.size(2), tails)
        mixed = columns.new_empty(*weights.shape[:3], columns.size(3))
        for head, tokens in enumerate(columns):
            torch.bmm(near[head], _windows(tokens, len(rows)), out=mixed[head])
        if tails:
            _add_products(mixed, _outermost(weights), _far(columns, len(rows)))
        return mixed

    @staticmethod
    @twice_differentiable(_formula)
    def backward(ctx, gradient):
        weights, columns, rows = ctx.saved_tensors
        (tails,) = ctx.settings
        gradient, blocks, size = gradient.contiguous(), len(rows), columns.size(2)
        near = _near(weights.to(columns.dtype), rows, size, tails)
        to_near, to_columns = torch.empty_like(near), torch.zeros_like(columns)
        for head, upstream in enumerate(gradient):
            torch.bmm(upstream, _windows(columns[head], blocks).mT, out=to_near[head])
            to_columns[head, :blocks].baddbmm_(near[head, ..., :size].mT, upstream)
            to_columns[head, 1 : blocks + 1].baddbmm_(near[head, ..., size:].mT, upstream)
        to_weights = _to_weights(to_near.to(weights.dtype), rows, weights.size(3), tails)
        if tails:
            far = _far(columns, blocks)
            gradient = gradient.to(far.dtype)
            to_left, to_right = (gradient @ far.mT).unbind(dim=3)
            to_weights[..., -1] += to_left
            to_weights[..., 0] += to_right
            to_sums = _to_sums(_outermost(weights).mT.to(far.dtype) @ gradient, columns.size(1))
            to_columns += to_sums.unsqueeze(2).to(columns.dtype)
        return to_weights, to_columns, None, None


def _near(weights, rows, size, tails):
    """The weights of the tokens in each block's window, (H, blocks, Q, 2S)."""
    clip_distance = weights.size(3) // 2
    offsets = rows[..., None] + clip_distance - torch.arange(2 * size, device=rows.device)
    index = offsets.clamp(-clip_distance, clip_distance) + clip_distance
    near = weights.gather(3, index.expand(len(weights), -1, -1, -1))
    return near if tails else near.masked_fill_(offsets.abs() > clip_distance, 0)


def _to_weights(to_near, rows, columns, tails):
    """The transpose of :func:`_near`, (H, blocks, Q, 2R + 1)."""
    rows = rows[..., None]
    at = rows + columns - 1 - torch.arange(columns, device=rows.device)  # of each offset in the window
    to_weights = to_near.gather(3, at.expand(len(to_near), -1, -1, -1))
    if tails:
        window = torch.arange(to_near.size(3), device=rows.device)
        for column, beyond in ((-1, window <= rows), (0, window >= rows + columns - 1)):
            to_weights[..., column] = (to_near * beyond).sum(dim=-1)
    return to_weights


def _outermost(weights):
    """Those of tokens far on the left and far on the right, (H, blocks, Q, 2)."""
    return torch.stack([weights[..., -1], weights[..., 0]], dim=-1)


def _windows(tokens, blocks):
    """Each of the first blocks and the next one as one, (blocks, 2S, C), without a copy; `tokens` is contiguous."""
    _, size, width = tokens.shape
    return tokens.as_strided((blocks, 2 * size, width), (size * width, width, 1))


def _far(columns, blocks):
    """Sums of the tokens on the left and on the right of each block's window, (H, blocks, 2, C)."""
    sums = columns.sum(dim=2, dtype=torch.promote_types(columns.dtype, torch.float32))
    # Each side is summed from its own end: as a difference it would lose digits.
    left = F.pad(sums.cumsum(1)[:, : blocks - 1], (0, 0, 1, 0))
    right = F.pad(_cumsum_from_the_end(sums), (0, 0, 0, 1))[:, 2 : blocks + 2]
    return torch.stack([left, right], dim=2)


def _to_sums(to_far, blocks):
    """The transpose of :func:`_far`, for the sums of all blocks of tokens: (H, blocks, C)."""
    left, right = to_far.unbind(dim=2)
    left = F.pad(_cumsum_from_the_end(left)[:, 1:], (0, 0, 0, blocks - left.size(1) + 1))
    before = (torch.arange(blocks, device=right.device) - 1).clamp(0, right.size(1))
    return left + F.pad(right.cumsum(1), (0, 0, 1, 0)).index_select(1, before)


def _cumsum_from_the_end(x):
    return x.flip(1).cumsum(1).flip(1)


def _add_products(mixed, weights, sums):
    """mixed += weights @ sums, in the precision of the sums."""
    for head, out in enumerate(mixed):
        if out.dtype == sums.dtype:
            out.baddbmm_(weights[head].to(sums.dtype), sums[head])
        else:
            out += weights[head].to(sums.dtype) @ sums[head]
