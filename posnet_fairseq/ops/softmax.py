"""The softmax over few keys, which torch computes one by one on CPUs."""

import torch
from torch import Tensor

# From so many numbers on, several passes cost less than numbers one by one; measured in docs/measurements.md.
FEWEST_NUMBERS = 2**10


def softmax(energy: Tensor) -> Tensor:
    """Return the softmax over the last dimension, as :func:`torch.softmax` does, of energies of any shape.

    torch's kernel on CPUs fills a vector register (16 numbers in float32 with AVX-512) from one row, and computes
    shorter rows number by number: there, whole tensors are passed over several times instead.
    """
    if not _is_slow(energy):
        return energy.softmax(dim=-1)
    powers = (energy - energy.detach().amax(dim=-1, keepdim=True)).exp_()
    return powers / powers.sum(dim=-1, keepdim=True)


def _is_slow(energy: Tensor) -> bool:
    if energy.device.type != "cpu" or energy.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    if energy.numel() < FEWEST_NUMBERS:
        return False
    return energy.size(-1) < (16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8)
