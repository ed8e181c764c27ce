"""A trained model made ready to translate."""

import warnings

import torch
from torch import nn

from posnet_fairseq.inference.precompute import precompute

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.qint8}


def ready(model, device, dtype="float32", fast=False):
    """The model on a device, in a precision.

    Args:
        model: in evaluation mode. It is changed.
        device: a torch.device.
        dtype: one of :data:`DTYPES`. int8 multiplies inputs and weights of 8 bits and keeps the rest in float32; torch
            has it on CPUs only.
        fast: store energies that no token has a part in.
    """
    if fast:
        precompute(model)
    if dtype == "int8":
        return _quantized(model)
    return model.to(device=device, dtype=DTYPES[dtype])


def _quantized(model):
    # Where source, target and output share embeddings, only the product with them gets 8-bit weights.
    model.decoder.output_projection.weight = nn.Parameter(model.decoder.output_projection.weight.detach())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that this will move to a package of its own
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)
