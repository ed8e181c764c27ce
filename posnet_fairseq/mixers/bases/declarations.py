"""What the class of a mixer says of it."""

from typing import Any, ClassVar, Literal

from torch import nn

from posnet_fairseq.mixers.bases.mixer_options import Options
from posnet_fairseq.mixers.bases.mixer_settings import PLACES, MixerSettings


class Declarations(nn.Module):
    """Base of :class:`~posnet_fairseq.mixers.bases.token_mixer.TokenMixer`.

    Class attributes:
        Config: dataclass of the options this mixer reads. Its defaults hold where neither the user nor the
            size says otherwise; its ``__post_init__`` refuses impossible values, as that of :class:`Options` does.
        GridConfig: the same on a grid; None if the mixer has no form there.
        places: where it may stand in a model of sentences; nowhere if it is one of grids alone.
        default_gate: ``--gate`` when the user leaves it open.
        position_embedding: kind of position embedding on its side of the model by default.
        reads_positions: whether it reads the vectors of the queries' positions.
        reads_memory_positions: whether it reads vectors of the memory's positions in cross-attention.
        reads_length_ratio: whether cross-attention depends on γ.
        static: whether the mixing weights depend on positions only, not on tokens.
        hides_pairs: whether :meth:`forward` takes an ``attn_mask``.
        arch_options: options that architectures of every size set, and to what, where it is not the default.
        operations_formula: the multiplications of self-attention in the encoder over one sentence, with the default
            options, as a sum of products of N tokens, the width D, K̂ = 2K + 1 offsets and E = H·C of ``--alpha-dim``;
            terms without N are left out. None if it is not declared.
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
    arch_options: ClassVar[dict[str, Any]] = {}
    operations_formula: ClassVar[str | None] = None
    stored_operations_formula: ClassVar[str | None] = None

    @classmethod
    def check(cls, settings: MixerSettings) -> None:
        """Refuse settings that this mixer cannot be built with, by a UsageError that says what is allowed."""
