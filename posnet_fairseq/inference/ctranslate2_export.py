"""Models for CTranslate2, which knows one token mixer: attention without a gate."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from posnet_fairseq.mixers.attention import Attention
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.transformer.placement import gates_at, mixers_at, places, position_kind

SIDES = ("encoder", "decoder")
# Values of --activation-fn, and CTranslate2's names of the same functions.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_accurate": "GELUTanh", "gelu_fast": "GELUTanh", "tanh": "Tanh"}


def check_model(cfg: Any, name: str) -> None:
    """Refuse a translation model, by its options and the name of its checkpoint, that CTranslate2 does not know."""
    obstacles = []
    for place in places(cfg):
        for mixer, gate in zip(mixers_at(cfg, place), gates_at(cfg, place), strict=True):
            if mixer is not Attention:
                obstacles.append(f"its {place} mixer is {mixer.name}")
            elif gate != "none":
                obstacles.append(f"its {place} mixer has the gate {gate}")
    obstacles += [f"its {side} has no positions" for side in SIDES if position_kind(cfg, side) == "none"]
    if cfg.encoder_attention_heads != cfg.decoder_attention_heads:
        obstacles.append("its encoder and decoder have different numbers of heads")
    if cfg.activation_fn not in ACTIVATIONS:
        obstacles.append(f"its activation is {cfg.activation_fn}")
    if obstacles:
        raise UsageError(
            f"--ctranslate2: {name} cannot be converted, because {obstacles[0]}. CTranslate2 knows models of "
            "--arch transformer_pos_* without gates. Leave --ctranslate2 out."
        )


@torch.no_grad()
def write(model: Any, cfg: Any, vocabulary: Vocabulary, folder: Path) -> None:
    """Write a model that ``ctranslate2.Translator`` loads into an empty folder.

    It is in float32 on the CPU, and :func:`check_model` has let its options pass.
    """
    from ctranslate2.specs import TransformerSpec, common_spec

    spec = TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        cfg.encoder_attention_heads,
        pre_norm=True,
        activation=getattr(common_spec.Activation, ACTIVATIONS[cfg.activation_fn]),
    )
    _set_side(spec.encoder, spec.encoder.embeddings[0], model.encoder)
    _set_side(spec.decoder, spec.decoder.embeddings, model.decoder)
    _set_linear(spec.decoder.projection, [model.decoder.output_projection])
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        cross = layer.cross_attn
        _set_norm(layer_spec.attention.layer_norm, layer.cross_attn_norm)
        _set_linear(layer_spec.attention.linear[0], [cross.query_proj])
        _set_linear(layer_spec.attention.linear[1], [cross.key_proj, cross.gating.value_proj])
        _set_linear(layer_spec.attention.linear[2], [cross.out_proj])
    spec.register_source_vocabulary(vocabulary.source_dictionary.symbols)
    spec.register_target_vocabulary(vocabulary.target_dictionary.symbols)
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def _set_side(spec: Any, embeddings: Any, side: Any) -> None:
    """Set encoder or decoder, without what only a decoder has."""
    embeddings.weight = side.embed_tokens.weight
    spec.scale_embeddings = math.sqrt(side.embed_tokens.weight.size(1))
    positions = side.positions
    # Learned positions are added before words are scaled.
    spec.position_encodings.encodings = positions.weight * (positions.scale if positions.learned else 1)
    _set_norm(spec.layer_norm, side.final_norm)
    for layer_spec, layer in zip(spec.layer, side.layers, strict=True):
        mixer, feed_forward = layer.self_attn, layer.feed_forward
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_attn_norm)
        _set_linear(layer_spec.self_attention.linear[0], [mixer.query_proj, mixer.key_proj, mixer.gating.value_proj])
        _set_linear(layer_spec.self_attention.linear[1], [mixer.out_proj])
        _set_norm(layer_spec.ffn.layer_norm, feed_forward.norm)
        _set_linear(layer_spec.ffn.linear_0, [feed_forward.inner])
        _set_linear(layer_spec.ffn.linear_1, [feed_forward.outer])


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight, norm.bias


def _set_linear(spec: Any, layers: list[Any]) -> None:
    """Set a product, or several with one input, whose rows follow one another."""
    spec.weight = torch.cat([layer.weight for layer in layers])
    if layers[0].bias is not None:
        biases = [torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers]
        spec.bias = torch.cat(biases)
