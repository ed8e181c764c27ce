"""A softmax over the last dimension that is also fast for few keys on CPUs."""

import torch
from torch import Tensor

# The fewest elements for which several vectorized passes are faster; measured in docs/measurements.md.
FEWEST_ELEMENTS = 2**10


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
