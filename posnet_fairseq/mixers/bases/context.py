"""What mixers know about the tokens of a call, beside the tokens."""

from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.ops.dtypes import dtype_name
from posnet_fairseq.ops.grid import Grid
from posnet_fairseq.ops.host_sync import may_look_at
from posnet_fairseq.ops.layout import padding_before_tokens
from posnet_fairseq.ops.offsets import scaled
from posnet_fairseq.shared.errors import UsageError

# Mixed values, and the mixing weights if they were asked for.
Mixed = tuple[Tensor, Tensor | None]


class Extras(TypedDict, total=False):
    """Arguments of a mixer's call that do not change the type of what it returns."""

    padding_mask: Tensor | None
    attn_mask: Tensor | None
    positions: Tensor | None
    memory_positions: Tensor | None
    length_ratio: tuple[int, int]


@dataclass(frozen=True)
class MixingContext:
    """Arguments of one call of a mixer.

    Attributes:
        positions: (P, D) vectors of the queries' positions from 0 on; None if there are none.
        memory_positions: (P, memory_dim) vectors of the memory's positions in cross-attention.
        padding_mask: (B, M), True at padding, which follows the real tokens except on grids; None if there is
            none.
        hidden: (B, H or 1, N, M), True at further pairs that are not mixed; None if there are none.
        length_ratio: γ as source tokens, target tokens; 1 to 1 in self-attention.
        need_weights: also return the mixing weights.
        state: of step-by-step decoding; None in a full pass.
        table_rows: in a step, the number of queries that tables shared by the steps are made for.
        device: of the tokens.
        grid: that the tokens are on; None in a sentence.
    """

    positions: Tensor | None = None
    memory_positions: Tensor | None = None
    padding_mask: Tensor | None = None
    hidden: Tensor | None = None
    length_ratio: tuple[int, int] = (1, 1)
    need_weights: bool = False
    state: DecodingState | None = None
    table_rows: int = 0
    device: torch.device | None = None
    grid: Grid | None = None

    @property
    def first(self) -> int:
        """The position of the first query: 0 except in a step."""
        return 0 if self.state is None else self.state.position

    @property
    def beam(self) -> int:
        """In a step of cross-attention, the queries of each row of the memory, all at one position; else 1."""
        return 1 if self.state is None else self.state.beam

    def query_index(self) -> Tensor:
        """Return the position of a step's query as an index, (1,)."""
        return torch.arange(1, device=self.device) + self.first

    def row(self, table: Tensor) -> Tensor:
        """Return the row of a step's query, (H, 1, M), in a table (H, rows, M)."""
        if isinstance(self.first, Tensor):  # in a traced graph
            return table.index_select(1, self.query_index())
        return table[:, self.first : self.first + 1]

    def scaled_positions(self, queries: int, first: int = 0) -> Tensor:
        """Return ⌊γn⌋ for queries n = `first` ... `first` + N - 1, (N,)."""
        return scaled(torch.arange(queries, device=self.device) + first, self.length_ratio)

    def offsets(self, queries: int, keys: int, first: int = 0) -> Any:
        """Return ⌊γn⌋ - m for those queries and keys m = 0 ... M - 1, (N, M); on a grid :data:`GridOffsets`."""
        if self.grid is not None:
            return self.grid.offsets(self.device)
        return self.scaled_positions(queries, first)[:, None] - torch.arange(keys, device=self.device)


def check_tensors(**arguments: object) -> None:
    """Refuse arguments, by name, that are no tensors."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise UsageError(f"{name} of the type {type(value).__name__}: give a torch.Tensor.")


def check_padding(padding_mask: Tensor, shape: torch.Size, anywhere: bool = False) -> None:
    """Check that a padding mask is boolean, of the shape (B, M), and that padding follows tokens, unless `anywhere`."""
    check_tensors(padding_mask=padding_mask)
    if padding_mask.dtype != torch.bool or padding_mask.shape != shape:
        given = f"{tuple(padding_mask.shape)} of {dtype_name(padding_mask)}"
        raise UsageError(f"padding_mask {given}: give bool for every memory token, {tuple(shape)}, True at padding.")
    if not anywhere and may_look_at(padding_mask) and bool(padding_before_tokens(padding_mask).any()):
        raise UsageError(
            "padding_mask: there is padding before tokens. Move it behind them with front_order and reorder of "
            "posnet_fairseq.ops.layout: order = front_order(padding_mask), then reorder(x, order) for tokens and mask. "
            "True is at padding: if yours is True at tokens, give ~padding_mask."
        )
