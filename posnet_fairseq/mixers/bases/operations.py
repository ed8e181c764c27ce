"""The sizes that a mixer's number of multiplications is a formula of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MixingSize:
    """Sizes of a full pass over one sentence.

    The formulas of :meth:`posnet_fairseq.mixers.bases.token_mixer.TokenMixer.operations` hold for numbers, and for
    anything that is added and multiplied like numbers, such as the symbols of sympy.

    Attributes:
        queries: N.
        keys: M; N in self-attention. Formulas of mixers with a clip distance hold for more than K tokens.
        embed_dim: D, the width of queries and memory.
        clip_distance: K.
        narrow_dim: E = H·C, the width of α-Translution's relative part; read by no other mixer.
    """

    queries: int
    keys: int
    embed_dim: int
    clip_distance: int = 0
    narrow_dim: int = 0

    @property
    def table_rows(self) -> int:
        """K̂ = 2K + 1, the rows of a table of relative positions."""
        return 2 * self.clip_distance + 1
