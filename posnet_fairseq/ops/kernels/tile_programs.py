"""Tiles of matrices in a GPU's memory, for the programs of this package, in Triton."""

import triton
import triton.language as tl


@triton.jit
def load_rows(base, row, rows, stride, column, width):
    """Rows of a matrix (rows, width) in memory, 0 outside of it."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(base + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(base, tile, row, rows, stride, column, width):
    """Write a tile to rows of a matrix (rows, width) in memory."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = base + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(place, tile.to(base.dtype.element_ty), mask=inside)
