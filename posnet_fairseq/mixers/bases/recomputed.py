"""Buffers that are computed again where they would have no values."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class RecomputedBuffer(nn.Module):
    """A module with a buffer that is computed, not saved.

    On the meta device it has no values, and neither ``to_empty`` nor a state dict gives it some: it is computed again
    when it leaves that device.
    """

    def computed_buffer(self) -> tuple[str, Tensor]:
        """Return the buffer's name and its values, on the CPU."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        found = self.computed_buffer() if any(buffer.is_meta for buffer in self.buffers(recurse=False)) else None
        super()._apply(fn, recurse)
        if found is not None and not (buffer := self.get_buffer(found[0])).is_meta:
            buffer.copy_(found[1])
        return self
