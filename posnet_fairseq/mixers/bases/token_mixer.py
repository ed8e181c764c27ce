"""What a token mixer is. Symbols: :mod:`posnet_fairseq.notation`."""

import dataclasses
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import torch
from fairseq.incremental_decoding_utils import with_incremental_state
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.gating import GATES, Gating
from posnet_fairseq.mixers.bases.hypotheses import Reordering
from posnet_fairseq.mixers.bases.operations import MixingSize
from posnet_fairseq.ops.heads import merge_heads, split_heads
from posnet_fairseq.ops.initialisation import linear
from posnet_fairseq.ops.layout import padding_before_tokens
from posnet_fairseq.ops.offsets import scaled
from posnet_fairseq.shared.errors import UsageError, flag

PLACES = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class MixerSettings:
    """How one mixer of one layer is built.

    Attributes:
        place: ``encoder`` or ``decoder`` self-attention, or ``cross``.
        embed_dim: D.
        memory_dim: width of the mixed tokens; D except in cross-attention.
        num_heads: H.
        max_positions: L, the longest sequence of queries.
        dropout: on mixing weights.
        gate: one of :data:`posnet_fairseq.mixers.bases.gating.GATES`.
        options: the mixer's own :attr:`TokenMixer.Config`.
        projection_bias: whether projections to queries, keys and values have biases.

    Raises:
        UsageError: no mixer can be built like that.
    """

    place: str
    embed_dim: int
    memory_dim: int
    num_heads: int
    max_positions: int
    dropout: float
    gate: str
    options: object
    projection_bias: bool = True

    def __post_init__(self):
        for name, allowed in (("place", PLACES), ("gate", GATES)):
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name} {getattr(self, name)}: choose one of {', '.join(allowed)}.")
        for name in ("embed_dim", "memory_dim", "num_heads", "max_positions"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise UsageError(f"{name} {value}: give a whole number, 1 or more.")
        if self.embed_dim % self.num_heads:
            raise UsageError(
                f"num_heads {self.num_heads}: embed_dim {self.embed_dim} does not divide by it. Give another."
            )
        if self.place != "cross" and self.memory_dim != self.embed_dim:
            raise UsageError(
                f"memory_dim {self.memory_dim}: self-attention mixes its queries, so give embed_dim, {self.embed_dim}."
            )
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout {self.dropout}: give 0 or more and less than 1.")


@dataclass(frozen=True)
class MixingContext:
    """Where the tokens of one call stand.

    Attributes:
        positions: (P, D) vectors of the queries' positions from 0 on, P ≥ first + N; None if no mixer reads them.
        memory_positions: (P, D) vectors of the memory's positions, P ≥ M, in cross-attention.
        padding_mask: (B, M), True at padding, which follows the real tokens; None if there is none.
        first: position of the first query: 0 except in step-by-step decoding.
        ahead: in step-by-step decoding, the number of queries that tables which the steps share are made for.
        hypotheses: in a step, the queries for each row of the memory, all at one position.
        length_ratio: γ as source tokens, target tokens; 1 to 1 in self-attention.
        state: of step-by-step decoding; None in a full pass.
        need_weights: also return the mixing weights.
    """

    positions: Tensor | None = None
    memory_positions: Tensor | None = None
    padding_mask: Tensor | None = None
    first: int = 0
    ahead: int = 0
    hypotheses: int = 1
    length_ratio: tuple[int, int] = (1, 1)
    state: DecodingState | None = None
    need_weights: bool = False

    def step(self, device=None):
        """The position of a step's one query, (1,)."""
        return torch.arange(1, device=device) + self.first

    def at(self, queries, device=None):
        """⌊γn⌋ for the queries of a call, (N,).

        Args:
            queries: N; they stand at positions n from ``first`` on.
            device: of the result.
        """
        return scaled(torch.arange(queries, device=device) + self.first, self.length_ratio)

    def offsets(self, queries, keys, device=None):
        """⌊γn⌋ - m for the queries of a call and keys 0 ... M - 1, (N, M).

        Args:
            queries: N, as in :meth:`at`.
            keys: M.
            device: of the result.
        """
        return self.at(queries, device)[:, None] - torch.arange(keys, device=device)


@with_incremental_state
class TokenMixer(nn.Module):
    """Base of all mixers: gated values in, :meth:`mix`, gate and output projection out.

    In the decoder a query sees itself and what stands before it; padding never follows into the past of a
    real token, so decoder mixers need no padding mask. A mixer must be exact in a full pass and step by step.

    Class attributes:
        Config: dataclass of the options this mixer reads. Its defaults hold where neither the user nor the
            size says otherwise; its ``__post_init__`` refuses impossible values with a UsageError.
        places: where it may stand.
        default_gate: ``--gate`` when the user leaves it open.
        position_embedding: kind of position embedding on its side of the model by default.
        reads_positions: whether it wants the context's ``positions``.
        reads_memory_positions: whether it wants ``memory_positions`` in cross-attention.
        reads_length_ratio: whether γ has a part in it in cross-attention.
        static: whether no token has a part in its weights.
        arch_options: options that architectures of every size set, and to what, where it is not the default.
    """

    @dataclass
    class Config:
        """No options."""

    name: ClassVar[str]  # both are set by register_mixer
    arch: ClassVar[str]
    places = PLACES
    default_gate = "none"
    position_embedding = "sinusoidal"
    reads_positions = False
    reads_memory_positions = False
    reads_length_ratio = False
    static = False
    arch_options: ClassVar = {}

    @classmethod
    def check(cls, settings):
        """Refuse settings that this mixer cannot be built with.

        Raises:
            UsageError: with the option, the value, and what is allowed.
        """

    @classmethod
    def in_layer(cls, settings, layer):
        """The module of a layer, counted from 0, where a model has this mixer."""
        return cls(settings)

    def __init__(self, settings):
        super().__init__()
        if settings.place not in self.places:
            raise UsageError(f"place {settings.place}: {self.name} stands in {' and '.join(self.places)} only.")
        if not isinstance(settings.options, self.Config):
            raise UsageError(
                f"options of the type {type(settings.options).__name__}: {self.name} is built with its own, "
                f"{type(self).__name__}.Config()."
            )
        self.check(settings)
        self.place = settings.place
        self.num_heads = settings.num_heads
        self.embed_dim = settings.embed_dim
        self.head_dim = settings.embed_dim // settings.num_heads
        self.gating = Gating(settings.gate, settings.embed_dim, settings.memory_dim, settings.projection_bias)
        self.out_proj = linear(settings.embed_dim, settings.embed_dim)
        self.dropout = FairseqDropout(settings.dropout, module_name=self.__class__.__name__)
        # What the weights are of is stored with them, as whole numbers, which averaging and half precision leave
        # alone; fairseq's moving average leaves alone what is called a version.
        self.register_buffer("mixer_version", torch.tensor(list(self._description(settings).encode())))

    def _description(self, settings):
        """The mixer's name, and what was chosen beside its defaults."""
        gate, default = ("--cross-gate", "none") if self.place == "cross" else ("--gate", self.default_gate)
        chosen = [f"{gate} {settings.gate}"] * (settings.gate != default)
        for field in dataclasses.fields(settings.options):
            value = getattr(settings.options, field.name)
            if value != field.default:
                chosen.append(flag(field.name) if value is True else f"{flag(field.name)} {value}")
        return " ".join([self.name, *chosen])

    @property
    def causal(self):
        """Whether queries must not see what follows them."""
        return self.place == "decoder"

    @property
    def reads_queries(self):
        """Whether the query tokens have a part in the result, other than as memory."""
        return not self.static or self.gating.kind == "gelu"

    def forward(self, query, memory, context):
        """Mix memory tokens for every query.

        Args:
            query: (B, N, D).
            memory: (B, M, memory_dim); the same tensor as `query` in self-attention. In a step of cross-attention it
                may have a row for several queries, as the context's ``hypotheses`` says.
            context: a :class:`MixingContext`.

        Returns:
            (B, N, D), and the mixing weights (B or 1, H, N, M) if the context asks for them, else None.

        Raises:
            UsageError: the arguments do not fit together, or padding stands before tokens (looked for on CPUs only).
        """
        self.check_call(query, memory, context)
        if context.hypotheses > 1:
            return self._mix_hypotheses(query.unflatten(0, (-1, context.hypotheses)).squeeze(2), memory, context)
        mixed, weights = self.mix(query, memory, context)
        return self.out_proj(self.gating(merge_heads(mixed), query)), weights

    def check_call(self, query, memory, context):
        """Refuse arguments of :meth:`forward` that would give wrong numbers.

        Raises:
            UsageError: what was given, and what is allowed.
        """
        if context.state is not None or context.hypotheses > 1:
            self._check_step(query, context)
        elif context.first:
            raise UsageError(f"first {context.first}: without a state, queries stand at positions from 0 on.")
        if memory is None:  # a later step of cross-attention has all of it in the state
            return
        if 0 in (*query.shape, *memory.shape):
            shapes = f"{tuple(query.shape)} and {tuple(memory.shape)}"
            raise UsageError(
                f"query and memory of the shapes {shapes}: there is nothing to mix. Leave out such a batch."
            )
        # No len(): it would make a number of what is open in an exported graph.
        rows, queries, keys = memory.size(0) * context.hypotheses, query.size(1), memory.size(1)
        if query.size(0) != rows or (self.place != "cross" and queries != keys):
            allowed = "as many sentences in both" if self.place == "cross" else "the same tokens as both"
            raise UsageError(
                f"{query.size(0)} × {queries} queries, memory for {rows} × {keys}: {self.place} mixers take {allowed}."
            )
        if context.padding_mask is not None and (context.state is None or self.place == "cross"):
            _check_padding(context.padding_mask, memory.shape[:2])

    def _check_step(self, query, context):
        if query.size(1) > 1:
            raise UsageError(
                f"{query.size(1)} tokens in one step of decoding: a call with a state takes one new token of every "
                "hypothesis. Give a prompt one token at a time, or without a state for a full pass."
            )
        # A graph is traced with states from elsewhere.
        if context.state is not None and self.place != "cross" and not torch.compiler.is_compiling():
            context.state.advance(context.first)

    def _mix_hypotheses(self, query, memory, context):
        """The hypotheses of a sentence as if they were its tokens, (B, hypotheses, D), and back to a row for each."""
        mixed, weights = self.mix(query, memory, context)
        # Weights that no token has a part in are the same for all of them.
        mixed = self.out_proj(self.gating(merge_heads(mixed), query)).expand_as(query)
        if weights is not None:
            weights = weights.expand(len(query), -1, context.hypotheses, -1).transpose(1, 2).flatten(0, 1).unsqueeze(2)
        return mixed.flatten(0, 1).unsqueeze(1), weights

    def mix(self, query, memory, context):
        """The mixer itself. Returns the mixed values (B, H, N, d), and weights as :meth:`forward` does."""
        raise NotImplementedError

    def value(self, memory, context):
        """The values of all memory tokens, (B, H, M, d), those of earlier steps included."""
        return self.of_memory("value", lambda: self.project_values(memory), context)

    def project_values(self, memory):
        """v_m of the tokens of this call, (B, H, M, d)."""
        return split_heads(self.gating.value(memory), self.num_heads)

    def of_memory(self, name, make, context):
        """A projection of the memory, (B, H, M, d): made, continued by one token, or remembered, as the step needs."""
        if context.state is None:
            return make()
        if self.place == "cross":
            context.state.shared["hypotheses"] = context.hypotheses
            return context.state.keep(name, make)
        return context.state.append(name, make())

    @property
    def drop_probability(self):
        """Of a mixing weight, now: 0 except in training, and after it with fairseq's ``--retain-dropout``."""
        return self.dropout.p if self.dropout.training or self.dropout.apply_during_inference else 0.0

    def outweighs(self, keys):
        """Whether a query's weights of all heads, on so many keys, are too much to keep for the backward pass."""
        return self.num_heads * keys > 4 * self.embed_dim

    def decoding_state(self, incremental_state):
        """This mixer's part of fairseq's `incremental_state`, or None for None."""
        if incremental_state is None:
            return None
        parts = []
        for key in ("rows", "shared"):
            if self.get_incremental_state(incremental_state, key) is None:
                self.set_incremental_state(incremental_state, key, {})
            parts.append(self.get_incremental_state(incremental_state, key))
        return DecodingState(*parts)

    def reorder_incremental_state(self, incremental_state, new_order):
        """Move the rows of the state as beam search moves its hypotheses.

        Args:
            incremental_state: fairseq's.
            new_order: (R,) numbers of hypotheses, or a :class:`Reordering` that all mixers share.
        """
        state = self.decoding_state(incremental_state)
        reordering = new_order if isinstance(new_order, Reordering) else Reordering(new_order)
        if self.place == "cross":
            state.move_sentences(reordering)
        else:
            state.move(reordering)

    def __setstate__(self, state):
        """A copy, and what was unpickled, gets a decoding state of its own."""
        super().__setstate__(state)
        self.init_incremental_state()

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        """Refuse the weights of another mixer or of other options before torch complains of names and shapes.

        Raises:
            UsageError: they are another's.
        """
        ours, stored = (
            bytes(codes.tolist()).decode(errors="replace")
            for codes in (self.mixer_version, state_dict.get(f"{prefix}mixer_version", self.mixer_version))
        )
        if stored != ours:
            options = {"encoder": "--encoder-self-mixer", "decoder": "--decoder-self-mixer", "cross": "--cross-mixer"}
            raise UsageError(
                f"the checkpoint was trained with {options[self.place]} {stored}, but the options say {ours}. "
                "Give the options it was trained with, or another --save-dir to train a new model."
            )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def operations(self, size: MixingSize) -> float:
        """Multiplications of a full pass over one sentence.

        A product and the sum that it is added to count once, as in papers. Products of single numbers, such as those
        with a mask or a scale, do not count.

        Args:
            size: of the sentence and the mixer.

        Raises:
            NotImplementedError: the mixer does not declare them.
        """
        raise NotImplementedError(f"{self.name} does not declare its operations")

    def projection_operations(self, size: MixingSize) -> float:
        """Multiplications of the projections that most mixers have: values, gate and output."""
        return self.gating.operations(size) + size.queries * size.embed_dim**2


def _check_padding(padding_mask, shape):
    """Refuse a mask other than :class:`MixingContext` describes, for a memory (B, M)."""
    if padding_mask.dtype != torch.bool or padding_mask.shape != shape:
        given = f"{tuple(padding_mask.shape)} of {str(padding_mask.dtype).removeprefix('torch.')}"
        raise UsageError(f"padding_mask {given}: give bool for every memory token, {tuple(shape)}, True at padding.")
    # On a GPU a look at it would be a wait in every layer; compiled, it would break the graph.
    looked_at = padding_mask.device.type == "cpu" and not torch.compiler.is_compiling()
    if looked_at and bool(padding_before_tokens(padding_mask).any()):
        raise UsageError(
            "padding_mask: there is padding before tokens. Give every sentence with its tokens first, as "
            "posnet_fairseq.ops.layout orders them."
        )
