"""Relative positions, and the rows of a table that they share."""

import math

import torch


def scaled(n, length_ratio):
    """⌊γn⌋: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 10.

    Args:
        n: query positions, a number or whole numbers in any shape.
        length_ratio: γ as source, target.
    """
    source, target = length_ratio
    return n * source // target


def clip_index(offsets, clip_distance):
    """clip(δ, -K, K) + K: rows of a table of 2K + 1 offsets, from K or more to the right to K or more to the left.

    Args:
        offsets: integers δ = n - m in any shape.
        clip_distance: K.
    """
    return offsets.clamp(-clip_distance, clip_distance) + clip_distance


def piecewise_index(offsets, beta):
    """g(δ) + β: exact up to β / 2, then ever coarser, one row from 4β on. iRPE (Wu et al., ICCV 2021) Eq. 18.

    With the paper's α : β : γ = 1 : 2 : 8; halves are rounded to the even number.

    Args:
        offsets: integers δ = n - m in any shape.
        beta: β; the table has 2β + 1 rows.
    """
    alpha, gamma = beta / 2, 4 * beta
    distance = offsets.abs().double()
    coarse = alpha + (distance.clamp(min=1) / alpha).log() / math.log(gamma / alpha) * (beta - alpha)
    buckets = torch.where(distance <= alpha, distance, coarse).round().clamp(max=beta).long()
    return offsets.sign() * buckets + beta


def table_index(kind, offsets, reach):
    """:func:`clip_index` or :func:`piecewise_index`; either way rows of a table of 2 · `reach` + 1."""
    return clip_index(offsets, reach) if kind == "clip" else piecewise_index(offsets, reach)
