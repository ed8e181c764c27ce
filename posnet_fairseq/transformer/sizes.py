"""Model sizes. Every mixer times every size is an ``--arch``."""

from dataclasses import Field, dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """Layers on each side, widths, and the regularization the papers used at that size."""

    layers: int
    embed_dim: int
    ffn_embed_dim: int
    attention_heads: int
    dropout: float
    clip_distance: int

    def of_side(self, side: str) -> dict[str, Any]:
        """Return the options of the encoder's or the decoder's shape."""
        names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        return {f"{side}_{name}": getattr(self, name) for name in names}


SIZES = {
    # For a CPU: what the quickstart trains in minutes.
    "tiny": Size(layers=3, embed_dim=192, ffn_embed_dim=512, attention_heads=4, dropout=0.1, clip_distance=8),
    # "Transformer-Tiny" of Wu et al. (2021), whose results on Multi30k are a benchmark.
    "multi30k": Size(layers=4, embed_dim=128, ffn_embed_dim=256, attention_heads=4, dropout=0.3, clip_distance=8),
    # "Small" in the PosNet paper.
    "iwslt": Size(layers=6, embed_dim=512, ffn_embed_dim=1024, attention_heads=8, dropout=0.3, clip_distance=16),
    "base": Size(layers=6, embed_dim=512, ffn_embed_dim=2048, attention_heads=8, dropout=0.1, clip_distance=16),
    # The PosNet paper's text says K = 8 here; the configuration its results come from says 16.
    "big": Size(layers=6, embed_dim=1024, ffn_embed_dim=4096, attention_heads=16, dropout=0.3, clip_distance=16),
}

# The language models of the Translution paper (Fan et al., 2025), Table 1. It does not say what dropout it had, nor
# is there a clip distance in it: those are of the size next to them.
GPT_SIZES = {
    "a": Size(layers=6, embed_dim=192, ffn_embed_dim=768, attention_heads=3, dropout=0.1, clip_distance=16),
    "b": Size(layers=12, embed_dim=192, ffn_embed_dim=768, attention_heads=3, dropout=0.1, clip_distance=16),
    "c": Size(layers=12, embed_dim=384, ffn_embed_dim=1536, attention_heads=6, dropout=0.1, clip_distance=16),
}


def of_arch(mixer: Any, option: Field, size: Size) -> Any:
    """Return the value that the architectures of a size give to an option of a mixer."""
    default = size.clip_distance if option.name == "clip_distance" else option.default
    return mixer.arch_options.get(option.name, default)
