"""Types of numbers, as users write them."""

import torch
from torch import Tensor


def dtype_name(tensor: Tensor) -> str:
    """Return the type of a tensor's numbers: ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def in_float(x: Tensor) -> Tensor:
    """Return numbers in float32, or wider ones as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
