"""Masks as large negative energies, and the softmax of energies.

Masks are finite: a query without a single real key would otherwise be softmax(-inf, ..., -inf) = NaN, which beam
search turns into an impossible hypothesis without an error. Half of the smallest number leaves room to add an energy
without overflow in half precision.
"""

import torch
from torch import Tensor

from posnet_fairseq.ops.dtypes import in_float

# The fewest elements for which several vectorized passes are faster: with AVX-512, 14,000 rows of 4 to 15 numbers take
# 0.20 to 0.32 of the time of torch's kernel, 320 rows 0.40 to 0.70; rows of 16 numbers and more 1.0 to 2.6.
FEWEST_ELEMENTS = 2**10


def masked_energy(dtype: torch.dtype) -> float:
    """Return the energy of a masked pair in ``dtype``."""
    return torch.finfo(dtype).min / 2


def padding_energy(padding_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return energies (B, 1, 1, M) that mask padding when they are added; None without a mask (B, M)."""
    if padding_mask is None:
        return None
    energy = torch.zeros(padding_mask.shape, dtype=dtype, device=padding_mask.device)
    return energy.masked_fill_(padding_mask, masked_energy(dtype))[:, None, None, :]


def normalized(energy: Tensor, padding_mask: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
    """Return the softmax of energies over the keys that each query may see, in float32 or wider.

    Args:
        energy: (B, H, N, M), or (1, H, N, M) for all sentences.
        padding_mask: (B, M), True at padding; None without padding.
        hidden: (N, M) or (B, H or 1, N, M), True at pairs that are not mixed, such as the future; or None.

    Returns:
        Weights (B, H, N, M), or (1, H, N, M) if all arguments are shared by the sentences. With `hidden` of four
        dimensions, the weights of a query whose keys are all hidden are zeros.
    """
    energy = in_float(energy)
    if hidden is not None:
        energy = energy.masked_fill(hidden, masked_energy(energy.dtype))
    if padding_mask is not None:
        energy = energy.masked_fill(padding_mask[:, None, None, :], masked_energy(energy.dtype))
    weights = softmax(energy)
    if hidden is None or hidden.dim() == 2:
        return weights
    unseen = hidden if padding_mask is None else hidden | padding_mask[:, None, None, :]
    return weights.masked_fill(unseen.all(dim=-1, keepdim=True), 0)


def softmax(energy: Tensor) -> Tensor:
    """Return the softmax over the last dimension, as :func:`torch.softmax` does, of energies of any shape.

    torch's CPU kernel vectorizes within a row. It computes rows that are shorter than a vector register (16 elements in
    float32 with AVX-512) element by element; these are computed by several vectorized passes over the tensor instead.
    """
    if not _is_slow(energy):
        return energy.softmax(dim=-1)
    powers = (energy - energy.detach().amax(dim=-1, keepdim=True)).exp_()
    return powers / powers.sum(dim=-1, keepdim=True)


def _is_slow(energy: Tensor) -> bool:
    if energy.device.type != "cpu" or energy.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    if energy.numel() < FEWEST_ELEMENTS:
        return False
    return energy.size(-1) < (16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8)
