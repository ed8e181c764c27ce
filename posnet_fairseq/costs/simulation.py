"""Tensors without content, to count the memory of a computation that would not fit here."""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Simulation(TorchDispatchMode):
    """A context in which floating-point tensors have no content, and all bytes are counted, those at the peak, too.

    Integers and booleans are computed: what a model asks of its tokens and masks has its real answer. Memory that an
    operator of torch takes within itself is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0  # bytes of tensors that were made here and are still there, and the most of them
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do an operation, and count its results."""
        kwargs = kwargs or {}
        if _makes_integers(tree_leaves((args, kwargs)), func):
            results = tree_map_only(Tensor, self._emptied, func(*args, **kwargs))
        else:
            with self._fake:
                results = func(*args, **kwargs)
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                self._count(result.untyped_storage())
        return results

    def _emptied(self, tensor: Tensor) -> Tensor:
        return self._fake.from_tensor(tensor) if tensor.is_floating_point() else tensor

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, size)

    def _forget(self, size: int) -> None:
        self.now -= size


def _makes_integers(arguments: Iterable[Any], func: Any) -> bool:
    """Return whether an operation reads integers and booleans only, or makes them of numbers."""
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    if tensors:
        return not any(each.is_floating_point() or each.is_complex() for each in tensors)
    dtypes = [each for each in arguments if isinstance(each, torch.dtype)]
    if dtypes:
        return not dtypes[0].is_floating_point
    return func.overloadpacket is torch.ops.aten.arange and not any(isinstance(each, float) for each in arguments)
