"""How models are loaded, and values that arguments of a translation may have. This module imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from posnet_fairseq.shared.errors import UsageError, option

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bf16", "fp16", "int8")
ALIASES = {"fp32": "float32"}
AUTO = "auto"  # bf16 on GPUs that compute in it, else float32
# Source tokens in a batch.
MAX_TOKENS = 2000
MAX_TOKENS_LIMITS = (1, 1_000_000_000)
PROCESSES_LIMITS = (1, 1000)
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


class TranslationLoadArguments(LoadArguments, total=False):
    """How translation models are loaded, as keyword arguments."""

    shortlist: str | Path | None
    onnx: bool


def refuse_meta(device: object) -> None:
    """Refuse torch's device ``meta``, on which commands load models that compute nothing, for a model of a user."""
    if str(device).startswith("meta"):
        raise UsageError(f"{option('device')} {device!s:.50}: it computes nothing. Give cpu, or cuda with a GPU.")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How trained models are loaded, see :func:`posnet_fairseq.api.load`; a UsageError if a value is impossible."""

    data: str | Path | None = None
    device: str | torch.device = "cpu"
    dtype: str = "float32"
    fast: bool = False
    pretokenized: bool = False
    bpe_codes: str | Path | None = None
    sentencepiece_model: str | Path | None = None
    shortlist: str | Path | None = None
    onnx: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):  # their types are texts here
            value, wanted = getattr(self, field.name), ""
            if field.type == "bool" and not isinstance(value, bool):
                wanted = "True or False"
            elif field.type == "str" and not isinstance(value, str):
                wanted = "a name"
            elif field.type == "str | Path | None" and not (value is None or (value and isinstance(value, str | Path))):
                wanted = "a path"
            if wanted:
                raise UsageError(f"{option(field.name)} {value!r:.50}: give {wanted}.")
        if self.pretokenized + (self.bpe_codes is not None) + (self.sentencepiece_model is not None) > 1:
            names = " and ".join(map(option, ("bpe_codes", "sentencepiece_model", "pretokenized")))
            raise UsageError(f"{names} split text in different ways. Give one of them.")
