"""Types of numbers, as users write them."""

from torch import Tensor


def dtype_name(tensor: Tensor) -> str:
    """Return the type of a tensor's numbers: ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")
