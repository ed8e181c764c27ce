"""How one mixer of one layer is built: checked here, and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.ops.grid import Grid
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.schema import check_choice, check_range

# The options of models that put a mixer at each place.
PLACE_OPTIONS = {"encoder": "encoder_self_mixer", "decoder": "decoder_self_mixer", "cross": "cross_mixer"}
PLACES = tuple(PLACE_OPTIONS)
# Far beyond any model that was ever trained. More is a slip, or a checkpoint that is made to fill the memory.
MOST = {"layers": 1000, "embed_dim": 2**15, "ffn_embed_dim": 2**17, "attention_heads": 2**15, "positions": 10**6}


@dataclass(frozen=True)
class MixerSettings:
    """How one mixer of one layer is built.

    Attributes:
        mixer: its registered name.
        place: ``encoder`` or ``decoder`` self-attention, or ``cross``.
        embed_dim: D.
        memory_dim: width of the mixed tokens; D except in cross-attention.
        num_heads: H.
        max_positions: L, the longest sequence of queries.
        dropout: on mixing weights.
        gate: one of :data:`posnet_fairseq.mixers.bases.gating.GATES`.
        options: the mixer's own :attr:`TokenMixer.Config`.
        projection_bias: whether projections to queries, keys and values have biases.
        grid: rows and columns of cells, which the tokens are, row by row; None where tokens are a sentence.
        extra_tokens: E, tokens in front of the cells that have no place.

    Raises:
        UsageError: no mixer can be built with these values. It names the options of models that give them.
    """

    mixer: str
    place: str
    embed_dim: int
    memory_dim: int
    num_heads: int
    max_positions: int
    dropout: float
    gate: str
    options: Any
    projection_bias: bool = True
    grid: tuple[int, int] | None = None
    extra_tokens: int = 0

    @property
    def cells(self) -> Grid | None:
        """The grid as mixers read it, None in a sentence."""
        return None if self.grid is None else Grid(*self.grid, self.extra_tokens)

    def __post_init__(self) -> None:
        check_choice("place", self.place, PLACES)
        side, place_option = side_of(self.place), option(PLACE_OPTIONS[self.place])
        cls = get_mixer(self.mixer, place_option)
        if self.grid is not None or self.extra_tokens:
            self._check_grid(cls)
        elif self.place not in cls.places:
            fitting = ", ".join(mixer_names(place=self.place))
            raise UsageError(f"{place_option} {self.mixer}: this mixer cannot stand there. Choose one of: {fitting}.")
        check_choice(option("cross_gate" if self.place == "cross" else "gate"), self.gate, GATES)
        heads = f"{side}_attention_heads"
        check_count(f"{side}_embed_dim", self.embed_dim, MOST["embed_dim"])
        check_count("memory_dim", self.memory_dim, MOST["embed_dim"])
        check_count(heads, self.num_heads, MOST["attention_heads"])
        limit = "max_source_positions" if side == "encoder" else "max_target_positions"
        check_count(limit, self.max_positions, MOST["positions"])
        if self.embed_dim % self.num_heads:
            raise UsageError(
                f"{option(heads)} {self.num_heads} must divide {option(f'{side}_embed_dim')} {self.embed_dim}. Change "
                "one of the two."
            )
        if self.place != "cross" and self.memory_dim != self.embed_dim:
            raise UsageError(
                f"memory_dim {self.memory_dim}: self-attention mixes its queries, so give embed_dim, {self.embed_dim}."
            )
        check_probability("attention_dropout", self.dropout)
        config = cls.Config if self.grid is None else cls.GridConfig
        if not isinstance(self.options, config):
            raise UsageError(
                f"options of the type {type(self.options).__name__}: {self.mixer} is built with its own, "
                f"{cls.__name__}.{'Config' if self.grid is None else 'GridConfig'}()."
            )
        cls.check(self)

    def _check_grid(self, cls: Any) -> None:
        if self.grid is None:
            raise UsageError(
                f"extra_tokens {self.extra_tokens!s:.50}: only a grid has tokens without a place. Give grid too, such "
                "as (14, 14), or leave it out."
            )
        if not isinstance(self.grid, tuple | list) or len(self.grid) != 2:
            raise UsageError(f"grid {self.grid!s:.50}: give rows and columns, such as (14, 14).")
        for size in self.grid:
            check_range("grid", size, 1, MOST["positions"], whole=True)
        check_range("extra_tokens", self.extra_tokens, 0, MOST["positions"], whole=True)
        if cls.GridConfig is None:
            names = ", ".join(mixer_names(on_grids=True))
            raise UsageError(f"grid {self.grid}: {self.mixer} has no form on grids. Choose one of: {names}.")
        if self.place != "encoder":
            what = "decoding and causal mixers need" if self.place == "decoder" else "cross-attention needs"
            raise UsageError(
                f"grid {self.grid}: {what} tokens in a line. On a grid all tokens mix one another: build the mixer "
                "without causal and cross_attention, or without grid."
            )
        cells = Grid(*self.grid, self.extra_tokens)
        if self.max_positions != cells.tokens:
            raise UsageError(f"max_positions {self.max_positions}: {cells} are {cells.tokens} tokens. Leave it out.")


def check_head_dim(settings: MixerSettings, divisor: int, says: str) -> None:
    """Refuse heads whose width, d, does not divide by a number; `says` goes on from "heads of d features"."""
    width = settings.embed_dim // settings.num_heads
    if width % divisor:
        heads, dim = (option(f"{side_of(settings.place)}_{name}") for name in ("attention_heads", "embed_dim"))
        raise UsageError(
            f"{heads} {settings.num_heads}: heads of {width} features {says}. Choose heads so that {dim} "
            f"{settings.embed_dim} / heads {'is even' if divisor == 2 else f'divides by {divisor}'}."
        )


def named_mixers(options: Mapping[str, Any]) -> set[str]:
    """Return the names of mixers that a model's options, by name, give for its places and layers."""
    given = (options.get(option) for option in PLACE_OPTIONS.values())
    return {name.strip() for text in given if isinstance(text, str) for name in text.split(",")}


def side_of(place: str) -> str:
    """Return the side of the model, ``encoder`` or ``decoder``, that has the mixers of a place."""
    return "encoder" if place == "encoder" else "decoder"


def check_count(name: str, value: Any, most: int) -> None:
    """Refuse an option's value that is no whole number from 1 to `most`."""
    check_range(option(name), value, 1, most, whole=True)


def check_probability(name: str, value: Any) -> None:
    """Refuse an option's value that is no probability of dropping less than everything."""
    if not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise UsageError(f"{option(name)} {value!r:.50}: give 0 or more and less than 1.")
