"""The options of the models: flat, as a command line has them.

An option that an architecture sets is None here; the architecture fills only what is None, so that what a user gives
wins. :mod:`posnet_fairseq.fairseq_plugin.flags` makes fairseq's flags of them.
"""

import dataclasses
import functools
from dataclasses import Field, dataclass, field
from typing import Any

import posnet_fairseq.mixers  # noqa: F401  (registers them: their options are options of the models)
from posnet_fairseq.mixers.bases.gating import Gate
from posnet_fairseq.mixers.bases.mixer_options import option as _option
from posnet_fairseq.mixers.bases.positions import PositionEmbedding
from posnet_fairseq.registry import option_fields, reserve_options
from posnet_fairseq.transformer.activations import Activation


def _of_task() -> Any:
    """An option that fairseq's task has under the same name."""
    return field(default=None, metadata={"of_task": True})


_OR_EACH = ", or one for each layer, such as rposnet,rposnet,attention"


@dataclass
class _DecoderOptions:
    decoder_self_mixer: str | None = _option(f"token mixer of the decoder's self-attention{_OR_EACH}")
    gate: Gate | None = _option("gate of the self-attention mixers (default: each mixer's own)")
    position_embedding: PositionEmbedding | None = _option("kind of positions (default: each side's mixer's own)")
    decoder_layers: int | None = _option("decoder layers")
    decoder_embed_dim: int | None = _option("width D of the decoder")
    decoder_ffn_embed_dim: int | None = _option("inner width of the decoder's feed-forward layers")
    decoder_attention_heads: int | None = _option("heads H of the decoder")
    dropout: float | None = _option("dropout on embeddings, positions and the output of every sub-layer")
    attention_dropout: float | None = _option("dropout on mixing weights (default: --dropout)")
    activation_dropout: float = _option("dropout inside the feed-forward layers", default=0.0)
    activation_fn: Activation | None = _option("activation of the feed-forward layers")
    decoder_layerdrop: float = _option("LayerDrop probability of the decoder", default=0.0)
    share_decoder_input_output_embed: bool = _option("one embedding for target and output", default=False)
    decoder_embed_path: str | None = _option("pre-trained decoder embeddings, a text file")
    checkpoint_activations: bool = _option("save memory: compute activations again in backward", default=False)
    offload_activations: bool = _option("with --checkpoint-activations, keep them on the CPU", default=False)
    compile: bool = _option(
        "compile layers for training with torch.compile: for GPUs, see docs/measurements.md; validation is as without",
        default=False,
    )
    max_target_positions: int | None = _of_task()


@dataclass
class _LanguageModelOptions(_DecoderOptions):
    tokens_per_sample: int | None = _of_task()
    add_bos_token: bool | None = _of_task()


@dataclass
class _TransformerOptions(_DecoderOptions):
    encoder_self_mixer: str | None = _option(f"token mixer of the encoder's self-attention{_OR_EACH}")
    cross_mixer: str | None = _option(f"token mixer between decoder and encoder{_OR_EACH} (default: attention)")
    encoder_gate: Gate | None = _option("gate of the encoder's self-attention (default: --gate)")
    decoder_gate: Gate | None = _option("gate of the decoder's self-attention (default: --gate)")
    encoder_position_embedding: PositionEmbedding | None = _option(
        "kind of positions of the encoder (default: --position-embedding)"
    )
    decoder_position_embedding: PositionEmbedding | None = _option(
        "kind of positions of the decoder (default: --position-embedding)"
    )
    cross_gate: Gate | None = _option("gate of the cross-attention mixer (default: none)")
    length_ratio: str | None = _option(
        "γ of position-based and relative cross-attention: source tokens per target token, a number, or auto: "
        "measured on the training set and stored in the checkpoint (default: auto)"
    )
    encoder_layers: int | None = _option("encoder layers")
    encoder_embed_dim: int | None = _option("width D of the encoder")
    encoder_ffn_embed_dim: int | None = _option("inner width of the encoder's feed-forward layers")
    encoder_attention_heads: int | None = _option("heads H of the encoder")
    encoder_layerdrop: float = _option("LayerDrop probability of the encoder", default=0.0)
    weight_noise: float = _option(
        "standard deviation of noise on weights in training, as a share of the largest for the same output; for models "
        "that will run on crossbars, see docs/crossbars.md",
        default=0.0,
    )
    weight_noise_on: str | None = _option(
        "what has --weight-noise: one or more of mixing,projections,feed-forward,output"
    )
    subword_dropout: float = _option(
        "probability of leaving out a merge of subwords in the training text, source and target, drawn again in every "
        "epoch, see docs/own-corpus.md",
        default=0.0,
    )
    freeze: str | None = _option("what is not trained: one or more of encoder,decoder,embeddings, see docs/recipes.md")
    share_all_embeddings: bool = _option("one embedding for source, target and output", default=False)
    encoder_embed_path: str | None = _option("pre-trained encoder embeddings, a text file")
    max_source_positions: int | None = _of_task()


for _options in (_TransformerOptions, _LanguageModelOptions):
    reserve_options(option.name for option in dataclasses.fields(_options))


def translation_model_fields() -> tuple[Field, ...]:
    """Return the options of translation models, also those of the mixers registered so far, each None until set."""
    return _with_mixer_options(_TransformerOptions, *option_fields().values())


def language_model_fields() -> tuple[Field, ...]:
    """Return the options of language models, as :func:`translation_model_fields` those of translation models."""
    return _with_mixer_options(_LanguageModelOptions, *option_fields().values())


@functools.lru_cache(maxsize=2)
def _with_mixer_options(base: type, *options: Field) -> tuple[Field, ...]:
    fields: list[Any] = []
    for option in options:
        annotation: Any = str if per_layer(option) else option.type  # "4,8,16": see placement.by_layer
        fields.append((option.name, annotation | None, field(default=None, metadata=dict(option.metadata))))
    return dataclasses.fields(dataclasses.make_dataclass("Options", fields, bases=(base,)))


def per_layer(option: Field) -> bool:
    """Return whether the layers of a side may have different values of a mixer's option."""
    return option.metadata.get("per_layer", False)
