"""What a token mixer is. Symbols: :mod:`posnet_fairseq.notation`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.call_checks import (
    check_call,
    check_length_ratio,
    check_state,
    check_step,
    check_vectors,
    hidden_pairs,
    refuse_other_dtype,
)
from posnet_fairseq.mixers.bases.context import Extras, Mixed, MixingContext
from posnet_fairseq.mixers.bases.decoding_state import DecodingState, table_rows
from posnet_fairseq.mixers.bases.energies import enough
from posnet_fairseq.mixers.bases.gating import Gating
from posnet_fairseq.mixers.bases.mixer_options import Options
from posnet_fairseq.mixers.bases.mixer_settings import PLACES, MixerSettings
from posnet_fairseq.mixers.bases.positions import Positions
from posnet_fairseq.ops.dropout import Dropout
from posnet_fairseq.ops.heads import merge_heads, split_heads
from posnet_fairseq.ops.initialization import linear
from posnet_fairseq.ops.offsets import positions_read
from posnet_fairseq.shared.errors import UsageError


class TokenMixer(nn.Module):
    """Base of all mixers: gated values in, :meth:`mix`, gate and output projection out.

    Decoder queries attend to themselves and earlier positions; padding never precedes a real token, so decoder mixers
    need no padding mask. A mixer must be exact in a full pass and step by step.

    Class attributes:
        Config: dataclass of the options this mixer reads. Its defaults hold where neither the user nor the
            size says otherwise; its ``__post_init__`` refuses impossible values, as that of :class:`Options` does.
        GridConfig: the same on a grid; None if the mixer has no form there.
        places: where it may stand in a model of sentences; nowhere if it is one of grids alone.
        default_gate: ``--gate`` when the user leaves it open.
        position_embedding: kind of position embedding on its side of the model by default.
        reads_positions: whether it reads the vectors of the queries' positions.
        reads_memory_positions: whether it reads vectors of the memory's positions in cross-attention, and those of
            its queries at ⌊γn⌋.
        reads_length_ratio: whether cross-attention depends on γ.
        static: whether the mixing weights depend on positions only, not on tokens.
        hides_pairs: whether :meth:`forward` takes an ``attn_mask``.
        drops_weights: whether there are mixing weights for ``--attention-dropout`` to drop.
        constant_state: whether the state of decoding has the same size after any number of steps.
        arch_options: options that architectures of every size set, and to what, where it is not the default.
        operations_formula: the multiplications of self-attention in the encoder over one sentence, with the default
            options, as a sum of products of N tokens, the widths D and d, H heads, K̂ = 2K + 1 offsets, E = H·C of
            ``--alpha-dim`` and R = ⌈D/16⌉; terms without N are left out. None if it is not declared.
        stored_operations_formula: the same with stored energies, where that differs.
    """

    Config: ClassVar[Any] = Options
    GridConfig: ClassVar[Any] = None
    name: ClassVar[str]
    arch: ClassVar[str]
    places: ClassVar[tuple[str, ...]] = PLACES
    default_gate: ClassVar[str] = "none"
    position_embedding: ClassVar[Literal["sinusoidal", "learned", "none"]] = "sinusoidal"
    reads_positions: ClassVar[bool] = False
    reads_memory_positions: ClassVar[bool] = False
    reads_length_ratio: ClassVar[bool] = False
    static: ClassVar[bool] = False
    hides_pairs: ClassVar[bool] = True
    drops_weights: ClassVar[bool] = True
    constant_state: ClassVar[bool] = False
    arch_options: ClassVar[dict[str, Any]] = {}
    operations_formula: ClassVar[str | None] = None
    stored_operations_formula: ClassVar[str | None] = None

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Refuse settings that this mixer cannot be built with, by a UsageError that says what is allowed."""

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__()
        self.settings = settings
        self.place = settings.place
        self.num_heads = settings.num_heads
        self.embed_dim = settings.embed_dim
        self.head_dim = settings.embed_dim // settings.num_heads
        self.gating: Any = Gating(settings.gate, settings.embed_dim, settings.memory_dim, settings.projection_bias)
        self.out_proj = linear(settings.embed_dim, settings.embed_dim)
        self.dropout = Dropout(settings.dropout, module_name=self.__class__.__name__)
        # Position vectors of a mixer that stands alone; in a model all layers of a side share one module.
        self.own_positions: Positions | None = None
        self.own_memory_positions: Positions | None = None

    @property
    def max_positions(self) -> int:
        """L, the longest sequence of queries."""
        return self.settings.max_positions

    @property
    def causal(self) -> bool:
        """Whether queries must not see what follows them."""
        return self.place == "decoder"

    def max_memory(self) -> int | None:
        """Return the most memory tokens of which cross-attention has positions; None if it has those of any number."""
        own = self.own_memory_positions
        return own.max_positions if own is not None and own.learned else None

    @property
    def reads_queries(self) -> bool:
        """Whether the result depends on the query tokens other than as memory."""
        return not self.static or self.gating.kind == "gelu"

    @property
    def drop_probability(self) -> float:
        """The probability in the current mode that a mixing weight is dropped."""
        return self.dropout.probability

    @overload
    def forward(
        self, query: Tensor, memory: Tensor | None = ..., *, need_weights: Literal[False] = ..., **more: Unpack[Extras]
    ) -> Tensor: ...

    @overload
    def forward(
        self, query: Tensor, memory: Tensor | None = ..., *, need_weights: Literal[True], **more: Unpack[Extras]
    ) -> Mixed: ...

    @overload
    def forward(
        self, query: Tensor, memory: Tensor | None = ..., *, need_weights: bool, **more: Unpack[Extras]
    ) -> Tensor | Mixed: ...

    def forward(
        self,
        query: Tensor,
        memory: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        positions: Tensor | None = None,
        memory_positions: Tensor | None = None,
        length_ratio: tuple[int, int] = (1, 1),
        need_weights: bool = False,
    ) -> Tensor | Mixed:
        """Mix memory tokens for every query.

        Args:
            query: (B, N, D). Empty batches and empty sequences are allowed.
            memory: (B, M, memory_dim) in cross-attention. Default: `query`, as self-attention has it.
            padding_mask: (B, M) bool, True at padding, which follows the real tokens; None if there is none.
            attn_mask: (N, M), (B, N, M) or (B, H, N, M) bool, True at pairs of query and memory token that are not
                mixed, such as tokens of different documents in one packed sequence. A query with no pair left mixes
                zeros. A causal mixer hides the future without it.
            positions: (P, D) vectors of the queries' positions from 0 on, P ≥ N, and P > ⌊γ(N - 1)⌋ for mixers that
                read the memory's, too. Default: those that the mixer owns; needed only where it reads positions.
            memory_positions: (P, memory_dim) vectors of the memory's positions, P ≥ M, in cross-attention.
            length_ratio: γ as source tokens, target tokens, in cross-attention.
            need_weights: also return the mixing weights.

        Returns:
            (B, N, D). With `need_weights` a tuple of it and the weights, (B or 1, H, N, M), or None where the mixer has
            no weights.

        Raises:
            UsageError: the arguments do not fit together, a sentence has more tokens than there are positions, or
                padding precedes tokens (looked for on CPUs only, and not in compiled code, which with a padding mask
                does not refuse too many tokens either).
        """
        if memory is None:
            if self.place == "cross":
                raise UsageError("memory is missing: a mixer for cross-attention needs the tokens that it mixes.")
            memory = query
        check_call(self.settings, self.max_memory(), query, memory, padding_mask)
        hidden = None if attn_mask is None else hidden_pairs(self, attn_mask, query, memory)
        check_length_ratio(self.place, length_ratio)
        check_vectors("memory_positions", memory_positions, self.settings.memory_dim)
        if 0 in query.shape[:2]:
            more: Extras = {"positions": positions, "memory_positions": memory_positions, "length_ratio": length_ratio}
            mixed, weights = self._mix_nothing(query, memory, more)
            return (mixed, weights) if need_weights else mixed
        positions = self._positions(positions, query.size(1), query.size(1), length_ratio)
        if memory_positions is None and self.own_memory_positions is not None:
            memory_positions = self.own_memory_positions.for_mixers(memory.size(1))
        given = positions, memory_positions, padding_mask, hidden, length_ratio, need_weights
        context = MixingContext(*given, device=query.device, grid=self.settings.cells)
        return self._result(query, memory, context)

    def _mix_nothing(self, query: Tensor, memory: Tensor, arguments: Extras) -> Mixed:
        """Return the result for one token more, without it: parameters get gradients, which are zeros."""
        batch, queries, keys = *query.shape[:2], memory.size(1)
        one, more = (F.pad(x, (0, 0, 0, int(x.size(1) == 0), 0, int(x.size(0) == 0))) for x in (query, memory))
        mixed, weights = self.forward(one, more if self.place == "cross" else None, need_weights=True, **arguments)
        return mixed[:batch, :queries], None if weights is None else weights[:batch, :, :queries, :keys]

    def init_state(
        self,
        batch_size: int,
        memory: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        memory_positions: Tensor | None = None,
        length_ratio: tuple[int, int] = (1, 1),
    ) -> DecodingState:
        """Return the state before the first step of decoding.

        Args:
            batch_size: hypotheses, B; there may be none.
            memory: (S, M, memory_dim) in cross-attention: a row per sentence, B a multiple of S. The hypotheses of a
                sentence follow one another and share its row. None in self-attention.
            padding_mask, memory_positions, length_ratio: as in :meth:`forward`, in cross-attention.

        Raises:
            UsageError: the mixer cannot decode, or the arguments do not fit together.
        """
        check_state(self.settings, self.max_memory(), batch_size, memory, padding_mask, memory_positions)
        check_length_ratio(self.place, length_ratio)
        check_vectors("memory_positions", memory_positions, self.settings.memory_dim)
        if memory is not None and memory_positions is None and self.own_memory_positions is not None:
            memory_positions = self.own_memory_positions.for_mixers(memory.size(1))
        return DecodingState(batch_size, memory, padding_mask, memory_positions, length_ratio, mixer=id(self))

    @overload
    def step(
        self,
        query: Tensor,
        state: DecodingState,
        positions: Tensor | None = None,
        rows: int | None = None,
        need_weights: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def step(
        self,
        query: Tensor,
        state: DecodingState,
        positions: Tensor | None = None,
        rows: int | None = None,
        *,
        need_weights: Literal[True],
    ) -> Mixed: ...

    @overload
    def step(
        self, query: Tensor, state: DecodingState, positions: Tensor | None, rows: int | None, need_weights: bool
    ) -> Tensor | Mixed: ...

    def step(
        self,
        query: Tensor,
        state: DecodingState,
        positions: Tensor | None = None,
        rows: int | None = None,
        need_weights: bool = False,
    ) -> Tensor | Mixed:
        """Mix for the next token of every hypothesis.

        Args:
            query: (B, 1, D).
            state: what :meth:`init_state` returned; it is advanced by one position.
            positions: as in :meth:`forward`, for the first `rows` positions. Default: those that the mixer owns.
            rows: number of queries that tables shared by the steps are made for, this one included. Default:
                :func:`~posnet_fairseq.mixers.bases.decoding_state.table_rows`.
            need_weights: also return the mixing weights, (B or 1, H, 1, M), or None of a recurrent mixer.

        Returns:
            (B, 1, D), equal to the last row of a full pass over all tokens so far; with `need_weights` a tuple.

        Raises:
            UsageError: an argument has another shape, or the positions of the model or of the tables are used up.
        """
        check_step(self, query, state, rows)
        rows = rows or table_rows(state.position, self.max_positions)
        positions = self._positions(positions, state.position + 1, rows, state.length_ratio)
        memory = query if state.sentences is None else state.memory
        given = positions, state.memory_positions, state.padding_mask, None, state.length_ratio, need_weights
        context = MixingContext(*given, state, rows, query.device)
        result = self._result(query, memory, context)
        state.position, state.memory = state.position + 1, None
        return result

    def _result(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Tensor | Mixed:
        """Mix and project, and return what a call does."""
        mix = self._mix_hypotheses if context.beam > 1 else self.mix_and_project
        try:
            mixed, weights = mix(query, memory, context)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError):
                vectors = {"positions": context.positions, "memory_positions": context.memory_positions}
                refuse_other_dtype(self, query, memory=memory, **vectors)
            raise
        return (mixed, weights) if context.need_weights else mixed

    def _positions(self, given: Tensor | None, queries: int, rows: int, length_ratio: tuple[int, int]) -> Tensor | None:
        """Return the vectors that `rows` queries look up, the first `queries` of which there are: given, or its own."""
        # Only those that read the memory's positions, too, look their own up at ⌊γn⌋.
        ratio = length_ratio if self.reads_memory_positions else (1, 1)
        if given is not None:
            check_vectors("positions", given, self.embed_dim)
            return enough(given, positions_read(rows, ratio), "positions") if self.reads_positions else given
        own = self.own_positions
        if own is None:
            return None
        if own.learned and self.place == "cross" and positions_read(queries, ratio) > self.max_positions:
            raise UsageError(
                f"{queries} queries look up {positions_read(queries, ratio)} positions: this mixer learns "
                f"{self.max_positions}. Give shorter sentences, or build it with a larger max_positions."
            )
        return own.for_mixers(positions_read(rows, ratio))

    def mix_and_project(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Return the mixed values after gate and output projection, (B, N, D), and weights if they are asked for."""
        mixed, weights = self.mix(query, memory, context)
        return self.out_proj(self.gating(merge_heads(mixed), query)), weights

    def _mix_hypotheses(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Mix and project with the hypotheses of a sentence as if they were its tokens, (S, beam, D)."""
        beam = context.beam
        query = query.unflatten(0, (-1, beam)).squeeze(2)
        mixed, weights = self.mix_and_project(query, memory, context)
        mixed = mixed.expand_as(query)  # static weights are equal for all hypotheses
        if weights is not None:
            weights = weights.expand(len(query), -1, beam, -1).transpose(1, 2).flatten(0, 1).unsqueeze(2)
        return mixed.flatten(0, 1).unsqueeze(1), weights

    def mix(self, query: Tensor, memory: Tensor | None, context: MixingContext) -> Mixed:
        """Return mixed values (B, H, N, d), and weights as :meth:`forward` returns them or None."""
        raise NotImplementedError(f"{type(self).__name__} does not define mix, which mixes the values")

    def value(self, memory: Tensor | None, context: MixingContext) -> Tensor:
        """Return the values of all memory tokens, (B, H, M, d), including those of earlier steps."""
        return self.cached_projection("value", lambda: self.project_values(memory), context)

    def project_values(self, memory: Tensor | None) -> Tensor:
        """Return v_m of the tokens of this call, (B, H, M, d)."""
        assert memory is not None
        return split_heads(self.gating.value(memory), self.num_heads)

    def cached_projection(self, name: str, project: Callable[[], Tensor], context: MixingContext) -> Tensor:
        """Return a projection of all memory tokens, (B, H, M, d).

        A full pass and the first step of cross-attention compute it, a step of self-attention that of its token.
        """
        if context.state is None:
            return project()
        if self.place == "cross":
            # Without gaps, in which products of many steps would have to copy it.
            return context.state.get_or_create(name, lambda: project().contiguous())
        return context.state.append(name, project())

    def should_recompute(self, keys: int) -> bool:
        """Whether the weights of a query for `keys` keys, all heads together, are too large to keep for backward."""
        return self.num_heads * keys > 4 * self.embed_dim

    if TYPE_CHECKING:
        __call__ = forward
