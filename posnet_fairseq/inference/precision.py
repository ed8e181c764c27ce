"""Device and precision of a trained model that is to translate."""

from typing import Any

import torch

from posnet_fairseq.inference.options import ALIASES, AUTO, DTYPES
from posnet_fairseq.inference.packing import pack
from posnet_fairseq.inference.stored_energies import precompute
from posnet_fairseq.shared.errors import UsageError, option

_TYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_dtype(dtype: str, device: str) -> str:
    """Return the precision to compute in on a type of device: as asked for, for ``auto`` bf16 on GPUs that have it."""
    dtype = ALIASES.get(dtype, dtype)
    has_bf16 = device != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == AUTO:
        return "bf16" if device == "cuda" and has_bf16 else "float32"
    obstacle = ""
    if dtype not in DTYPES:
        obstacle = f"choose one of {', '.join((*DTYPES, AUTO))}"
    elif dtype == "int8" and torch.backends.quantized.engine == "none":
        obstacle = "this build of torch multiplies no 8-bit numbers. Choose bf16 or float32"
    elif dtype == "int8" and device != "cpu":
        obstacle = "torch multiplies 8-bit numbers on CPUs only. Use a CPU, or choose bf16"
    elif dtype == "bf16" and not has_bf16:
        name = torch.cuda.get_device_name()
        obstacle = f"{name} does not multiply in bf16, which takes compute capability 8.0. Choose fp16 or float32"
    if obstacle:
        raise UsageError(f"{option('dtype')} {dtype!s:.50}: {obstacle}.")
    return dtype


def check_device(device: str | torch.device) -> torch.device:
    """Return the device, if this machine has it."""
    try:
        if str(device).split(":")[0] not in ("cpu", "cuda", "meta"):
            raise RuntimeError("posnet knows no such device")
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        reason = f"{str(error).strip():.200}".split("\n")[0].rstrip(".")
        given = f"{option('device')} {device!s:.50}"
        raise UsageError(f"{given} cannot be used: {reason}. Give cpu, or cuda with a GPU.") from error
    return place


def prepare_for_inference(model: Any, device: torch.device, dtype: str = "float32", fast: bool = False) -> Any:
    """Move a translation model or language model in evaluation mode to a device in a precision. It is changed.

    Args:
        dtype: one of :data:`DTYPES`. On a CPU bf16 and int8 are the precision of weights and of the inputs that they
            are multiplied by; all else is float32. int8 is for CPUs only.
        fast: store energies that depend on positions only as tables.
    """
    if fast:
        precompute(model)
    if device.type == "cpu" and dtype != "fp16":
        pack(model, dtype)
        # What was not packed is mapped into memory from files, which others may change.
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
        return model
    return model.to(device, _TYPES[dtype])
