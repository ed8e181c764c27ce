"""Device and precision of a trained model that is to translate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from posnet_fairseq.inference.arguments import AUTO, DTYPES
from posnet_fairseq.inference.model_folder import read_divergence
from posnet_fairseq.inference.packing.pack import WORTHWHILE, layer_speedup, pack
from posnet_fairseq.inference.precompute import precompute
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.compiling import CompilableLayer, check_compiler, compile_layer

_TYPES = dict(zip(DTYPES, (torch.float32, torch.bfloat16, torch.float16, torch.qint8), strict=True))
# The largest divergence from float32, in nats a token, of a precision that is chosen where none is asked for: models
# lost 0.04 BLEU with 0.00006, and 0.2 with 0.00045 (docs/measurements.md).
LARGEST_DIVERGENCE = 0.0003
# By device, the fastest first: precisions, and the names of their divergence.
_FASTEST_FIRST = {"cpu": {"int8": "int8", "bf16": "bf16"}, "cuda": {"bf16": "bf16 on GPUs"}}

Model = TypeVar("Model", bound=nn.Module)


def check_dtype(dtype: str, device: str) -> None:
    """Refuse a precision in which a kind of device does not compute.

    Args:
        dtype: one of :data:`DTYPES`, or :data:`AUTO`.
        device: ``cpu``, ``cuda`` or another of torch's.

    Raises:
        UsageError: there is no such precision, or not on this device.
    """
    if dtype not in (*DTYPES, AUTO):
        raise UsageError(f"--dtype {dtype!s:.50}: choose one of {', '.join((*DTYPES, AUTO))}.")
    if dtype == "int8" and torch.backends.quantized.engine == "none":
        raise UsageError("--dtype int8: this build of torch multiplies no 8-bit numbers. Choose bf16 or float32.")
    if dtype == "int8" and device != "cpu":
        raise UsageError("--dtype int8: torch multiplies 8-bit numbers on CPUs only. Use a CPU, or choose bf16.")
    if dtype == "bf16" and device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UsageError(
            f"--dtype bf16: {torch.cuda.get_device_name()} does not multiply in bf16, which takes compute capability "
            "8.0. Choose fp16 or float32."
        )


def choose_dtype(paths: Sequence[str | Path], device: str) -> tuple[str, str]:
    """The fastest precision in which models predict nearly what they predict in float32.

    How near a precision is to float32 was measured when the models were exported; how fast it is, is measured here.

    Args:
        paths: of checkpoints and model folders, which are used together.
        device: ``cpu``, ``cuda`` or another of torch's.

    Returns:
        one of :data:`DTYPES`, and the reason as a clause.

    Raises:
        UsageError: a folder is damaged.
    """
    found = [read_divergence(path) for path in paths]
    known = set.intersection(*map(set, found))
    if not known:
        return "float32", "how far other precisions are from it is known of models that posnet-export measured"
    divergence = {name: max(each[name] for each in found) for name in known}
    return _fastest(device, {name: each for name, each in divergence.items() if each <= LARGEST_DIVERGENCE})


def _fastest(device: str, divergence: Mapping[str, float]) -> tuple[str, str]:
    """As :func:`choose_dtype`, of precisions that are near enough."""
    for dtype, name in _FASTEST_FIRST.get(device, {}).items():
        if name in divergence:
            near = f"its predictions are {divergence[name]:.5f} nats a token from those in float32"
            if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
                return dtype, near
            if device == "cpu" and (speedup := layer_speedup(dtype)) > WORTHWHILE:
                return dtype, f"{near}, its products {speedup:.1f} times as fast on this processor"
    return "float32", f"no other precision is both faster here and within {LARGEST_DIVERGENCE} nats a token of it"


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


def check_compile(dtype: str, device: str) -> None:
    """Refuse to compile models in a precision or on a machine.

    Args:
        dtype: one of :data:`DTYPES`.
        device: ``cpu``, ``cuda`` or another of torch's.

    Raises:
        UsageError: torch cannot compile there.
    """
    if device == "cpu" and dtype in ("bf16", "int8"):
        raise UsageError(
            f"--compile with --dtype {dtype}: on CPUs their weights are packed, and torch compiles plain ones only. "
            "Choose float32, or leave --compile out."
        )
    check_compiler(device)


def prepare_for_inference(
    model: Model, device: torch.device, dtype: str = "float32", fast: bool = False, compile: bool = False
) -> Model:
    """Move a model to a device in a precision.

    Args:
        model: in evaluation mode. It is changed.
        device: where it is to compute.
        dtype: one of :data:`DTYPES`. On a CPU bf16 and int8 are the precision of weights and of the inputs that they
            are multiplied by; all else is float32. int8 is for CPUs only.
        fast: store energies that depend on positions only as tables.
        compile: compile the layers, whose weights are then not packed; see :func:`check_compile`.

    Raises:
        UsageError: torch cannot compile its mixers.
    """
    if fast:
        precompute(model)
    if compile:
        _compile_layers(model)
    if device.type == "cpu" and dtype != "fp16":
        if not compile:
            pack(model, dtype)
        # What was not packed is mapped into memory from files, which others may change.
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
        return model
    return model.to(device, _TYPES[dtype])


def _compile_layers(model: nn.Module) -> None:
    mixers = [module.name for module in model.modules() if isinstance(module, OffsetMixer)]
    if mixers:
        # torch 2.13 does not trace their own derivatives without gradients: "save_for_backward is not defined".
        raise UsageError(f"--compile: torch compiles {mixers[0]} in training only. Leave it out.")
    for module in model.modules():
        if isinstance(module, CompilableLayer):
            compile_layer(module)
