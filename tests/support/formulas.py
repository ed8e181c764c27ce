"""Formulas that the references of several mixers share."""

import math

import torch

from support import reference


def absolute_energy(mixer, energy, positions, memory_positions):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 8 as a function (h, n, m)."""
    q = reference.project(positions, energy.query_proj, mixer.num_heads)
    memory = memory_positions if mixer.place == "cross" else positions
    k = reference.project(memory, energy.key_proj, mixer.num_heads)
    return lambda h, n, m: q[h][reference.at(mixer, n)] @ k[h][m] / mixer.head_dim**0.5


def relative_energy(mixer, energy, positions):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eqs. 9 and 10 as a function (h, n, m)."""
    q = reference.project(positions, energy.query_proj, mixer.num_heads)
    table = reference.split(energy.relative, mixer.num_heads)
    limit = energy.reach

    def of_pair(h, n, m):
        offset = reference.clip(reference.at(mixer, n) - m, limit)
        return q[h][n] @ table[h][offset + limit] / mixer.head_dim**0.5

    return of_pair


def naive_linearnet(mixer, x, y):
    """PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 13: no softmax, what may not be seen counts 0."""
    weights = reference.masked(mixer, lambda h, n, m: mixer.weight[h, n, m], len(x), len(y), hidden=0.0)
    return reference.mix_one_sentence(mixer, x, y, weights)


def piecewise(x, beta):
    """iRPE (Wu et al., ICCV 2021) Eq. 18 with α : β : γ = 1 : 2 : 8."""
    alpha, gamma = beta / 2, 4 * beta
    if abs(x) <= alpha:
        return round(x)
    bucket = round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha))
    return int(math.copysign(min(beta, bucket), x))


def sinusoid(offset, width):
    """Sines, then cosines, of geometrically falling frequencies."""
    angles = [offset / 10000 ** (i / (width / 2)) for i in range(width // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)
