"""When the numbers of a tensor may decide what is computed next."""

import torch
from torch import Tensor

DEVICES = ("cpu",)  # whose tensors are there without waiting


def may_look_at(tensor: Tensor) -> bool:
    """Return whether Python may look at a tensor's numbers: a GPU would be waited for, a compiled graph would break."""
    return tensor.device.type in DEVICES and not torch.compiler.is_compiling()
