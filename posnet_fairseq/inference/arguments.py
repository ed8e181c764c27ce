"""How models are loaded, and values that arguments of a translation may have. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bf16", "fp16", "int8")
ALIASES = {"fp32": "float32"}
AUTO = "auto"  # bf16 on GPUs that compute in it, else float32
# Source tokens in a batch.
MAX_TOKENS = 2000
MAX_TOKENS_LIMITS = (1, 1_000_000_000)
# What happens to a line of more tokens than the model takes.
ON_LONG = ("error", "truncate", "skip")
# What posnet-export writes into a model folder where it is asked for.
SHORTLIST, CTRANSLATE2 = "shortlist.safetensors", "ctranslate2"


class LoadArguments(TypedDict, total=False):
    """How a language model is loaded, as keyword arguments: :class:`LoadOptions` has the defaults."""

    device: str | torch.device
    dtype: str
    fast: bool
    pretokenized: bool
    bpe_codes: str | Path | None
    sentencepiece_model: str | Path | None
    compile: bool


class TranslationLoadArguments(LoadArguments, total=False):
    """How translation models are loaded, as keyword arguments."""

    shortlist: str | Path | None
    onnx: bool


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How trained models are loaded, see :func:`posnet_fairseq.api.load` for each."""

    data: str | Path | None = None
    device: str | torch.device = "cpu"
    dtype: str = "float32"
    fast: bool = False
    pretokenized: bool = False
    bpe_codes: str | Path | None = None
    sentencepiece_model: str | Path | None = None
    shortlist: str | Path | None = None
    compile: bool = False
    onnx: bool = False
