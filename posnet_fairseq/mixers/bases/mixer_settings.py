"""How one mixer of one layer is built."""

import dataclasses
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.shared.errors import UsageError, flag

if TYPE_CHECKING:
    from posnet_fairseq.mixers.bases.token_mixer import TokenMixer

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
        shared_dropout: whether static weights, which all sentences of a batch share, are dropped for all of them alike.

    Raises:
        UsageError: no mixer can be built with these values.
    """

    place: str
    embed_dim: int
    memory_dim: int
    num_heads: int
    max_positions: int
    dropout: float
    gate: str
    options: Any
    projection_bias: bool = True
    shared_dropout: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("place", PLACES), ("gate", GATES)):
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name} {getattr(self, name)}: choose one of {', '.join(allowed)}.")
        for name in ("embed_dim", "memory_dim", "num_heads", "max_positions"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise UsageError(f"{name} {value}: give a whole number, 1 or more.")
        if self.embed_dim % self.num_heads:
            raise UsageError(
                f"num_heads {self.num_heads}: embed_dim {self.embed_dim} does not divide by it. Give another."
            )
        if self.place != "cross" and self.memory_dim != self.embed_dim:
            raise UsageError(
                f"memory_dim {self.memory_dim}: self-attention mixes its queries, so give embed_dim, {self.embed_dim}."
            )
        if not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise UsageError(f"dropout {self.dropout}: give 0 or more and less than 1.")


def description(mixer: "TokenMixer", settings: MixerSettings) -> str:
    """The mixer's name, and the options that differ from its defaults, as a command line has them."""
    gate, default = ("--cross-gate", "none") if mixer.place == "cross" else ("--gate", mixer.default_gate)
    chosen = [f"{gate} {settings.gate}"] * (settings.gate != default)
    options: Any = settings.options
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            chosen.append(flag(field.name) if value is True else f"{flag(field.name)} {value}")
    return " ".join([mixer.name, *chosen])
