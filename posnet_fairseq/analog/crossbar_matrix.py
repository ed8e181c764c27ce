"""A matrix on simulated crossbars, of which a part can be read."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from aihwkit.nn import AnalogLinear
from aihwkit.simulator.tiles.analog_mvm import AnalogMVM
from aihwkit.simulator.tiles.array import TileModuleArray
from torch import Tensor, nn


def on_crossbars(linear: nn.Linear, configuration: Any) -> AnalogLinear:
    """Return aihwkit's layer with the weights of a linear layer on crossbars and its biases in digital.

    `configuration` is that of :meth:`posnet_fairseq.analog.hardware.Hardware.configuration`.
    """
    layer = AnalogLinear.from_digital(linear, configuration, TileModuleArray).eval()
    layer.register_forward_pre_hook(lambda _, inputs: (_without_subnormal(inputs[0]),))
    return layer


def _without_subnormal(x: Tensor) -> Tensor:
    """Replace subnormal inputs, as distant weights make them, by 0: aihwkit divides by the largest of a vector."""
    return x.masked_fill(x.abs() < torch.finfo(x.dtype).tiny, 0)


class CrossbarMatrix(nn.Module):
    """A matrix (N, M) of which some outputs are read, and whose last inputs may be missing: such lines add nothing."""

    def __init__(self, weight: Tensor, configuration: Any) -> None:
        super().__init__()
        linear = nn.Linear(weight.size(1), weight.size(0), bias=False)
        linear.weight.data = weight
        self.layer = on_crossbars(linear, configuration)

    def read(self, x: Tensor, first: int, count: int) -> Tensor:
        """Return the products of rows from the first on, (..., count), with values (..., K) on the first K lines."""
        array: Any = self.layer.analog_module
        reads = []
        for inputs, _, tiles in _spans(array.in_sizes, array.array, 0, x.size(-1)):
            driven, outputs = _without_subnormal(x[..., inputs]), _spans(array.out_sizes, tiles, first, first + count)
            reads.append(torch.cat([_product(tile, driven, lines) for _, lines, tile in outputs], dim=-1))
        return functools.reduce(torch.add, reads)


def _product(tile: Any, driven: Tensor, lines: slice) -> Tensor:
    """Return what the converters of some output lines of a tile give, in the scale of the weights."""
    weight = tile.tile.weight[lines, : driven.size(-1)]
    read = AnalogMVM.matmul(weight, driven, tile.rpu_config.forward, is_test=True)
    return read * tile.alpha * tile.get_scales().flatten()[lines]


def _spans(sizes: Sequence[int], tiles: Iterable[Any], begin: int, end: int) -> Iterator[tuple[slice, slice, Any]]:
    """Yield each tile that has lines from `begin` to before `end`: these among all, among its own, and the tile."""
    start = 0
    for size, tile in zip(sizes, tiles, strict=True):
        low, high = max(begin, start), min(end, start + size)
        if low < high:
            yield slice(low, high), slice(low - start, high - start), tile
        start += size
