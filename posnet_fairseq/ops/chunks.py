"""A long batch a few sentences at a time: energies of a whole batch fit in no cache, and hardly into memory."""

import torch
from torch.utils.checkpoint import checkpoint

# Energies at once, as numbers. On a CPU they should stay in its cache; measured in docs/measurements.md.
CPU_LIMIT = 2**21
GPU_LIMIT = 2**28


def in_chunks(function, tensors, energies, recompute):
    """function(*tensors) for so many sentences at once that their energies stay below a limit.

    Args:
        function: of tensors with a row for each sentence, to a tensor with a row for each sentence.
        tensors: its arguments; None where there is none.
        energies: how many numbers one sentence's energies are.
        recompute: whether to make energies again in the backward pass rather than keep them.

    Returns:
        What `function` returns for the whole batch.
    """
    first = next(tensor for tensor in tensors if tensor is not None)
    size = max(1, (CPU_LIMIT if first.device.type == "cpu" else GPU_LIMIT) // energies)
    batch = first.size(0)
    if size >= batch:
        return function(*tensors)
    parts = [[None] * -(-batch // size) if tensor is None else tensor.split(size) for tensor in tensors]
    chunks = zip(*parts, strict=True)
    if recompute and torch.is_grad_enabled():
        return torch.cat([checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks])
    return torch.cat([function(*chunk) for chunk in chunks])
