"""A long batch a few sentences at a time: energies of a whole batch fit in no cache, and hardly into memory."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

# Energies at once, as numbers. On a CPU they should stay in its cache; measured in docs/measurements.md.
CPU_LIMIT = 2**21
GPU_LIMIT = 2**28


def in_chunks(
    function: Callable[..., Tensor],
    tensors: Sequence[Tensor | None],
    energies: int,
    recompute: bool,
    module: nn.Module | None = None,
) -> Tensor:
    """function(*tensors) for so many sentences at once that their energies stay below a limit.

    Args:
        function: of tensors with a row for each sentence, to a tensor with a row for each sentence.
        tensors: its arguments; None where there is none.
        energies: how many numbers one sentence's energies are.
        recompute: whether to make energies again in the backward pass rather than keep them.
        module: whose parameters and buffers `function` reads; None if it reads none.

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
        # A compiled graph has the parameters as inputs.
        if module is not None and not torch.compiler.is_compiling():
            function = _with_tensors_of_now(module, function)
        return torch.cat([checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks])
    return torch.cat([function(*chunk) for chunk in chunks])


def _with_tensors_of_now(module, function):
    """`function` with the parameters and buffers that `module` has now, whenever it is called.

    In the backward pass the module may have others: those of :func:`torch.func.functional_call` are gone by then. A
    change in place is refused, as autograd refuses it for what it keeps.
    """
    now = dict(module.named_parameters()) | dict(module.named_buffers())
    versions = _versions(now)
    reader = _Reader(module, function)

    def call(*arguments):
        changed = [name for name, version in _versions(now).items() if version != versions[name]]
        if changed:
            raise RuntimeError(
                f"{changed[0]} of {type(module).__name__} has been modified by an inplace operation, but the backward "
                "pass needs it as it was. Change parameters after the backward pass."
            )
        return functional_call(reader, {f"module.{name}": tensor for name, tensor in now.items()}, arguments)

    return call


def _versions(tensors):
    return {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}


class _Reader(nn.Module):
    """A function as the forward of a module around the one whose parameters it reads."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.forward = module, function
