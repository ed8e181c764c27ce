"""Noise on weights in training, for models whose weights will be noisy conductances of crossbars."""

import torch
from torch import Tensor


def noise_of(weight: Tensor, scale: float, draws: Tensor | None = None) -> Tensor:
    """Return normally distributed noise for a matrix.

    Its standard deviation is ``scale`` times the largest absolute value of the row: a crossbar has a digital scale for
    each output line, by which the largest weight of the line takes the largest conductance.

    Args:
        weight: (..., O, I).
        scale: standard deviation as a share of the largest weight.
        draws: standard normal numbers, of a shape that broadcasts to that of ``weight``. Default: new ones.

    Returns:
        The shape of ``weight``, without gradient.
    """
    weight = weight.detach()
    draws = torch.randn_like(weight) if draws is None else draws
    return draws * (scale * weight.abs().amax(dim=-1, keepdim=True))
