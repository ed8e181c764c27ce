"""The options of the models as fairseq wants them.

fairseq builds command-line flags from the annotations of a dataclass and knows ``Optional[X]`` and ``ChoiceEnum``, not
``X | None`` and ``Literal``.
"""

import dataclasses
from typing import Any, Literal, Optional, get_args, get_origin

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from omegaconf import II

from posnet_fairseq.mixers.bases.mixer_options import plain_type
from posnet_fairseq.registry import parsers_are_made, reserve_options
from posnet_fairseq.transformer.model_options import language_model_fields, translation_model_fields


def _as_fairseq_has_it(option: dataclasses.Field) -> tuple[str, Any, Any]:
    """Return name, type and field of an option in fairseq's dataclass."""
    kind: Any = plain_type(option)
    if get_origin(kind) is Literal:
        kind = ChoiceEnum(list(get_args(kind)))
    if option.metadata.get("of_task"):
        annotation: Any = kind if kind is bool else Optional[kind]
        return option.name, annotation, dataclasses.field(default=II(f"task.{option.name}"))
    annotation = kind if option.type is kind else Optional[kind]
    return option.name, annotation, dataclasses.field(default=option.default, metadata=dict(option.metadata))


def _config(name: str, options: Any) -> type:
    return dataclasses.make_dataclass(name, map(_as_fairseq_has_it, options), bases=(FairseqDataclass,))


# Of two flags of one name, fairseq's parser has the first one, without a word.
_theirs = FairseqConfig()
for _group in ("common", "distributed_training", "dataset", "optimization", "checkpoint", "ema"):
    reserve_options(_option.name for _option in dataclasses.fields(getattr(_theirs, _group)))
reserve_options(["arch", "task", *REGISTRIES])

MixerTransformerConfig: Any = _config("MixerTransformerConfig", translation_model_fields())
MixerLanguageModelConfig: Any = _config("MixerLanguageModelConfig", language_model_fields())
parsers_are_made()
