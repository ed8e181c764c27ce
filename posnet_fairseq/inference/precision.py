"""Device and precision of a trained model that is to translate."""

from typing import TypeVar

import torch
from torch import nn

from posnet_fairseq.inference.packing.pack import pack
from posnet_fairseq.inference.precompute import precompute
from posnet_fairseq.shared.errors import UsageError

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.qint8}

Model = TypeVar("Model", bound=nn.Module)


def check_dtype(dtype: str, device: str) -> None:
    """Refuse a precision in which a kind of device does not compute.

    Args:
        dtype: one of :data:`DTYPES`.
        device: ``cpu``, ``cuda`` or another of torch's.

    Raises:
        UsageError: there is no such precision, or not on this device.
    """
    if dtype not in DTYPES:
        raise UsageError(f"--dtype {dtype!s:.50}: choose one of {', '.join(DTYPES)}.")
    if dtype == "int8" and device != "cpu":
        raise UsageError("--dtype int8: torch multiplies 8-bit numbers on CPUs only. Use a CPU, or choose bf16.")


def check_device(device: str | torch.device) -> torch.device:
    """The device, if this machine has it.

    Raises:
        UsageError: it cannot be used.
    """
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, TypeError) as error:  # torch without CUDA asserts
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UsageError(f"--device {device!s:.50} cannot be used: {reason}. Give cpu, or cuda with a GPU.") from error
    return place


def prepare_for_inference(model: Model, device: torch.device, dtype: str = "float32", fast: bool = False) -> Model:
    """Move a model to a device in a precision.

    Args:
        model: in evaluation mode. It is changed.
        device: where it is to compute.
        dtype: one of :data:`DTYPES`. On a CPU bf16 and int8 are the precision of weights and of the inputs that they
            are multiplied by; all else is float32. int8 is for CPUs only.
        fast: store energies that depend on positions only as tables.
    """
    if fast:
        precompute(model)
    if device.type == "cpu" and dtype != "fp16":
        pack(model, dtype)
        # Weights are mapped into memory from files, which others may change.
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
        return model
    return model.to(device, DTYPES[dtype])
