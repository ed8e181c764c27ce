"""iRPE, in one dimension and on grids."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from posnet_fairseq.mixers.bases import ContentBasedMixer, MixerSettings, Options, option
from posnet_fairseq.ops.buckets import Buckets
from posnet_fairseq.ops.heads import split_table
from posnet_fairseq.ops.initialization import zeros_without_decay
from posnet_fairseq.registry import register_mixer
from posnet_fairseq.shared import errors


@dataclass
class IRPEOptions(Options):
    """Section 3.2 of the paper."""

    irpe_mode: Literal["contextual", "bias"] = option(
        "vectors that tokens are multiplied with, or scalars (iRPE Eqs. 14-17)",
        default="contextual",
    )
    irpe_on: Literal["k", "q", "v", "qk", "qv", "kv", "qkv"] | None = option(
        "what contextual vectors are on: queries, keys, values (iRPE Eqs. 15-17; default: k)", default=None
    )
    irpe_share_heads: Literal["shared", "separate"] | None = option(
        "one table for all heads (iRPE Table 2; default: shared in contextual mode, separate in bias mode)",
        default=None,
    )
    irpe_index: Literal["piecewise", "clip"] = option(
        "how distances share rows of a table (iRPE Eqs. 18 and 9)", default="piecewise"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.irpe_mode == "bias" and self.irpe_on is not None:
            mode = errors.option("irpe_mode")
            raise errors.UsageError(
                f"{errors.option('irpe_on')} {self.irpe_on}: the scalars of {mode} bias are on none of them. "
                f"Leave it out, or give {mode} contextual."
            )
        if self.irpe_mode == "contextual":
            self.irpe_on = self.irpe_on or "k"
        self.irpe_share_heads = self.irpe_share_heads or ("separate" if self.irpe_mode == "bias" else "shared")


@register_mixer("irpe")
class IRPE(ContentBasedMixer):
    """α̂_nm = (q_n·k_m + b_nm) / √d: iRPE (Wu et al., ICCV 2021) Eqs. 13-18 and 26-28.

    Contextual mode: b_nm = q_n·r^K[I] + k_m·r^Q[I] and values v_m + r^V[I], each where ``--irpe-on`` names it.
    Bias mode: b_nm = r[I]. I = g(n - m), or g(|n - m|) undirected. Tables start at zero and take no weight decay.
    In cross-attention n is ⌊γn⌋. On a grid I is that of ``irpe_method``, Eqs. 19-25.
    """

    operations_formula = "K̂ND + 2N²D + 4ND²"

    @dataclass
    class Config(IRPEOptions):
        """In one dimension Cross and Product coincide, and Euclidean and Quantization."""

        irpe_beta: int = option("β: tables have 2β + 1 rows (iRPE Eq. 18)", default=16, reach=True)
        irpe_undirected: bool = option(
            "do not tell left from right (iRPE Eqs. 19-21; default: directed, Eqs. 22-25)", default=False
        )

    @dataclass
    class GridConfig(IRPEOptions):
        """On a grid."""

        irpe_index: Literal["piecewise", "clip", "window"] = option(  # type: ignore[assignment]  # one choice more
            "how offsets share rows of a table (iRPE Eqs. 18 and 9); window: none beyond β, as in Axial-DeepLab",
            default="piecewise",
        )
        irpe_method: Literal["product", "cross", "euclidean", "quantization"] = option(
            "what is indexed: pairs of offsets, the offsets of each direction, or distances (iRPE Eqs. 19-25)",
            default="product",
        )
        irpe_beta: float = option(
            "β: the greatest index is its whole part (iRPE Eq. 18; default: as published for images)", default=3.8
        )

    reads_length_ratio = True
    buckets: Buckets

    def __init__(self, settings: MixerSettings) -> None:
        super().__init__(settings)
        options = settings.options
        self.beta = options.irpe_beta
        self.directed = settings.grid is not None or not options.irpe_undirected
        method: Any = "product" if settings.grid is None else options.irpe_method
        self.buckets = Buckets(options.irpe_index, self.beta, settings.cells, method)
        bias_mode = options.irpe_mode == "bias"
        shared = options.irpe_share_heads == "shared"
        # Undirected, only half of the rows could ever be used.
        rows = self.buckets.rows if self.directed else self.beta + 1
        heads = 1 if shared else self.num_heads
        self.bias = zeros_without_decay(heads, rows) if bias_mode else None
        on = "" if bias_mode else options.irpe_on
        width = self.head_dim if shared else self.embed_dim
        self.on_queries, self.on_keys, self.on_values = (
            zeros_without_decay(rows, width) if letter in on else None for letter in "qkv"
        )

    def prepare(self, offsets: Any) -> Tensor:
        """Rows of the tables, (N, M)."""
        return self.buckets.index(offsets) if self.directed else self.buckets.index(offsets.abs()) - self.beta

    def offset_table(self, q: Tensor) -> Tensor | None:
        """In bias mode (1, H, 1, T), in contextual mode on keys (B, H, N, T)."""
        if self.bias is not None:
            bias = self.buckets.table(self.bias.T).T[:, None] * self.scale
            return bias.expand(self.num_heads, -1, -1).unsqueeze(0)
        vectors = self._per_head(self.on_keys)
        return None if vectors is None else q @ vectors.mT

    def key_vectors(self) -> Tensor | None:
        """r^Q."""
        return self._per_head(self.on_queries)

    def value_vectors(self) -> Tensor | None:
        """r^V."""
        return self._per_head(self.on_values)

    def _per_head(self, table: Tensor | None) -> Tensor | None:
        """Return (1, T, d) if heads share the table, else (H, T, d)."""
        return None if table is None else split_table(self.buckets.table(table), self.head_dim)
