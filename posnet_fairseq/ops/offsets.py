"""Relative positions and the rows of the tables that they index."""

import math
from typing import TypeVar

import torch
from torch import Tensor

_Positions = TypeVar("_Positions", int, Tensor)


def scaled(n: _Positions, length_ratio: tuple[int, int]) -> _Positions:
    """Return ⌊γn⌋ of integers in any shape, γ as (source tokens, target tokens): PosNet (WMT 2023) Eq. 10."""
    source, target = length_ratio
    return n * source // target


def positions_read(queries: int, length_ratio: tuple[int, int]) -> int:
    """Return the number of positions, from 0 on, among which queries 0 ... N - 1 look up their own, n, and ⌊γn⌋."""
    return max(queries, scaled(queries - 1, length_ratio) + 1)


def clip_index(offsets: Tensor, clip_distance: int) -> Tensor:
    """Return clip(δ, -K, K) + K of offsets in any shape: rows of a table of 2K + 1 offsets, from -K to K."""
    return offsets.clamp(-clip_distance, clip_distance) + clip_distance


def piecewise_index(offsets: Tensor, beta: float) -> Tensor:
    """Return g(δ) + β: rows of a table of 2β + 1 buckets, iRPE (Wu et al., ICCV 2021) Eq. 18.

    Distances up to β / 2 have a bucket each; beyond, buckets grow with the distance, and all distances from 4β on
    share one. This is the paper's α : β : γ = 1 : 2 : 8; halves are rounded to even. Where β is no whole number, its
    whole part is the greatest bucket, as in the published code.
    """
    alpha, gamma = beta / 2, 4 * beta
    distance = offsets.abs().double()
    coarse = alpha + (distance.clamp(min=1) / alpha).log() / math.log(gamma / alpha) * (beta - alpha)
    buckets = torch.where(distance <= alpha, distance, coarse).round().clamp(max=beta).long()
    return offsets.sign() * buckets + int(beta)
