"""Launching of Triton's programs."""

import subprocess
from typing import Any

import torch
import triton
from torch import Tensor
from triton.errors import TritonError

from posnet_fairseq.ops.kernels import SWITCH
from posnet_fairseq.shared.errors import UsageError


def launch(program: Any, grid: tuple[int, ...], *arguments: Tensor | float, **constants: Any) -> None:
    """Run a program once for each point of a grid, on the GPU of its first argument.

    Raises:
        UsageError: it cannot be compiled for this GPU, or not be run there.
        RuntimeError: there is not enough memory; fairseq takes a smaller batch then.
    """
    first = arguments[0]
    assert isinstance(first, Tensor)
    try:
        with torch.cuda.device_of(first):
            program[grid](*arguments, **constants)
    except (TritonError, RuntimeError, subprocess.CalledProcessError) as error:
        if "out of memory" in str(error):  # of torch or of Triton
            raise
        where = torch.cuda.get_device_name(first.device) if first.is_cuda else "this processor"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise UsageError(
            f"The kernel {program.fn.__name__} cannot be compiled or run on {where} with triton {triton.__version__}: "
            f"{reason}. Set the environment variable {SWITCH}=off: torch's operations then compute the same."
        ) from error


def precision() -> str:
    """Return how products of float32 are computed: as torch does, ``ieee`` or faster and less exact ``tf32``."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def strides(tensor: Tensor) -> tuple[int, int, int]:
    """Return the strides of (B, H, N, d) but the last, which must be 1."""
    first, second, third, last = tensor.stride()
    assert last == 1
    return first, second, third


def dense_rows(tensor: Tensor) -> Tensor:
    """Return (B, H, N, d) with the features of a row side by side, itself if it has them so."""
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


def empty_by_rows(batch: int, heads: int, rows: int, width: int, like: Tensor) -> Tensor:
    """Return an empty tensor (B, H, N, d) in memory as (B, N, H, d), so that heads are merged without a copy."""
    return like.new_empty(batch, rows, heads, width).transpose(1, 2)


def blocks(size: int, block: int) -> int:
    """Return the number of blocks that cover `size` rows."""
    return -(-size // block)
