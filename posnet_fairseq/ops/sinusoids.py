"""Sinusoids of positions (Vaswani et al., 2017), negative positions included.

Angles are computed in float64 whatever the precision of the model: they are few, and large positions lose digits.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def frequencies(count: int, device: torch.device) -> Tensor:
    """Return 10000^(-i / count) for i = 0 ... count - 1, (count,) in float64."""
    return 10000.0 ** -(torch.arange(count, dtype=torch.float64, device=device) / count)


def sinusoids(offsets: Tensor, width: int) -> Tensor:
    """Return the sines of every offset, (T,) integers, followed by the cosines: (T, D) in float64."""
    half = (width + 1) // 2
    angles = offsets[:, None] * frequencies(half, offsets.device)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


def sinusoidal_embedding(count: int, width: int, device: torch.device) -> Tensor:
    """Return the embeddings of positions 0 ... count - 1 as fairseq computes them, (count, D) in float32.

    Sines, then cosines, with wave lengths from 2π to 20,000π; of an odd width the last feature is 0.
    """
    half = width // 2
    waves = torch.exp(torch.arange(half, dtype=torch.float, device=device) * -(math.log(10000) / max(1, half - 1)))
    angles = torch.arange(count, dtype=torch.float, device=device)[:, None] * waves
    return F.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))


def rotate(x: Tensor, *positions: Tensor) -> Tensor:
    """Return ``x`` with each pair of features rotated by an angle proportional to the position.

    RoFormer (Su et al., 2021) Eq. 34; feature i is paired with feature i + d/2. The product of two results depends on
    the difference of their positions only. Positions of several directions have equal shares of the pairs, in order.

    Args:
        x: (B, H, N, d), d even.
        positions: (N,) integers of each direction.
    """
    half = x.size(-1) // 2
    turns = frequencies(half // len(positions), x.device)
    angles = torch.cat([of_one[:, None] * turns for of_one in positions], dim=1)
    sin, cos = angles.sin().to(x), angles.cos().to(x)
    # Loops over whole rows of d features take less time on CPUs than those over halves.
    sin, cos = torch.cat([-sin, sin], dim=1), torch.cat([cos, cos], dim=1)
    return torch.addcmul(x * cos, x.roll(half, dims=-1), sin)
