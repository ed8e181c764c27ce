"""Kernels in Triton for operations that PyTorch doesn't fuse, on NVIDIA GPUs.

Importing this package does not import triton. Elsewhere than on a GPU, and where kernels cannot be used, mixers compute
the same with torch's operations.
"""

import functools
import importlib.util
import os
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from posnet_fairseq.shared.errors import UsageError

# Triton's own requirement, and the first GPUs with products in bfloat16.
OLDEST = (8, 0)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SWITCH = "POSNET_KERNELS"
# What they are used for, as posnet-doctor says it.
USES = "attention of shaw (without --shaw-values), irpe (on k, or bias) and scalar_bias"


@dataclass(frozen=True)
class Obstacle:
    """Why kernels are not used, and what to do about it ("" if that is as wished)."""

    says: str
    fix: str = ""


def obstacle(device: int) -> Obstacle | None:
    """Return what keeps kernels from being used on the GPU of an index; None if they are used."""
    switch = os.environ.get(SWITCH) or "on"
    if switch not in ("on", "off"):
        raise UsageError(f"{SWITCH}={switch}: give on, the default, or off, for torch's operations instead of kernels.")
    if switch == "off":
        return Obstacle(f"turned off by {SWITCH}=off")
    if not torch.cuda.is_available():
        return Obstacle("only GPUs have them")
    if torch.version.hip is not None:
        return Obstacle("only NVIDIA GPUs have them")
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        name, (major, minor) = torch.cuda.get_device_name(device), capability
        return Obstacle(
            f"{name} has compute capability {major}.{minor}, they need {OLDEST[0]}.{OLDEST[1]}", "use a newer GPU"
        )
    if importlib.util.find_spec("triton") is None:
        return Obstacle("triton is not installed", "pip install triton")
    return None


def are_used(value: Tensor) -> bool:
    """Return whether kernels compute with tensors of this device and data type.

    Warns once for a GPU on which they could be used, or a newer one, but are not.
    """
    return value.is_cuda and value.dtype in DTYPES and _are_used_on(value.get_device())


def _are_used_on(device: int) -> bool:
    return _obstacle_told(device) is None


# As torch.compiler.assume_constant_result marks a function; that would import the compiler, which takes a second.
_are_used_on._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _obstacle_told(device: int) -> Obstacle | None:
    found = obstacle(device)
    if found is not None and found.fix:
        warnings.warn(
            f"posnet: mixers are slower on this GPU without kernels: {found.says}. To change that, {found.fix}; to "
            f"stop this message, set {SWITCH}=off.",
            stacklevel=2,
        )
    return found
