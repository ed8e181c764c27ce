"""Types of numbers, as users write them."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor


def dtype_name(tensor: Tensor) -> str:
    """Return the type of a tensor's numbers: ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def float_type(x: Tensor) -> torch.dtype:
    """Return float32, or the type of a tensor if that is wider: of sums of many of its numbers."""
    return torch.promote_types(x.dtype, torch.float32)


def in_float(x: Tensor) -> Tensor:
    """Return numbers in float32, or wider ones as they are."""
    return x.to(float_type(x))


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which products of tensors on the device of `x` keep their types."""
    kind = x.device.type
    enabled = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if enabled else contextlib.nullcontext()
