"""The options of the models: flat, as fairseq's command line and hydra want them.

fairseq builds command-line flags from the annotations of this file, so they must be real types
(``Optional[int]``, never a string or ``int | None``). An option that an architecture sets is None here; the
architecture fills only what is None, so whatever a user gives wins.
"""

import dataclasses
import re
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.utils import get_available_activation_fns
from omegaconf import II

import posnet_fairseq.mixers  # noqa: F401  (registers them: their options become flags)
from posnet_fairseq.mixers.bases.gating import GATES
from posnet_fairseq.mixers.bases.options import configure
from posnet_fairseq.mixers.bases.token_mixer import MixerSettings
from posnet_fairseq.registry import get_mixer, mixer_names, option_fields
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer import length_ratio
from posnet_fairseq.transformer.positions import POSITION_EMBEDDINGS
from posnet_fairseq.transformer.sizes import GPT_SIZES, SIZES, of_arch

PLACE_OPTIONS = {"encoder": "encoder_self_mixer", "decoder": "decoder_self_mixer", "cross": "cross_mixer"}

# Far beyond any model that was ever trained. More is a slip, or a checkpoint that is made to fill the memory.
MOST = {"layers": 1000, "embed_dim": 2**15, "ffn_embed_dim": 2**17, "attention_heads": 2**15}
MOST_POSITIONS = 10**6
MOST_PARAMETERS = 10**11

_GATE = ChoiceEnum(GATES)
_POSITION_EMBEDDING = ChoiceEnum(POSITION_EMBEDDINGS)
_ACTIVATION = ChoiceEnum(get_available_activation_fns())


def _option(help_text, default=None):
    return field(default=default, metadata={"help": help_text})


@dataclass
class _DecoderOptions(FairseqDataclass):
    decoder_self_mixer: Optional[str] = _option("token mixer of the decoder's self-attention")
    gate: Optional[_GATE] = _option("gate of the self-attention mixers (default: each mixer's own)")
    position_embedding: Optional[_POSITION_EMBEDDING] = _option("kind of positions (default: each side's mixer's own)")
    decoder_layers: Optional[int] = _option("decoder layers")
    decoder_embed_dim: Optional[int] = _option("width D of the decoder")
    decoder_ffn_embed_dim: Optional[int] = _option("inner width of the decoder's feed-forward layers")
    decoder_attention_heads: Optional[int] = _option("heads H of the decoder")
    dropout: Optional[float] = _option("dropout on embeddings, positions and the output of every sub-layer")
    attention_dropout: Optional[float] = _option("dropout on mixing weights (default: --dropout)")
    activation_dropout: float = _option("dropout inside the feed-forward layers", default=0.0)
    activation_fn: Optional[_ACTIVATION] = _option("activation of the feed-forward layers")
    decoder_layerdrop: float = _option("LayerDrop probability of the decoder", default=0.0)
    share_decoder_input_output_embed: bool = _option("one embedding for target and output", default=False)
    decoder_embed_path: Optional[str] = _option("pre-trained decoder embeddings, a text file")
    checkpoint_activations: bool = _option("save memory: compute activations again in backward", default=False)
    offload_activations: bool = _option("with --checkpoint-activations, keep them on the CPU", default=False)
    max_target_positions: Optional[int] = II("task.max_target_positions")


@dataclass
class _LanguageModelOptions(_DecoderOptions):
    tokens_per_sample: Optional[int] = II("task.tokens_per_sample")
    add_bos_token: bool = II("task.add_bos_token")


@dataclass
class _TransformerOptions(_DecoderOptions):
    encoder_self_mixer: Optional[str] = _option("token mixer of the encoder's self-attention")
    cross_mixer: Optional[str] = _option("token mixer between decoder and encoder (default: attention)")
    cross_gate: Optional[_GATE] = _option("gate of the cross-attention mixer (default: none)")
    length_ratio: Optional[str] = _option(
        "γ of position-based and relative cross-attention: source tokens per target token, a number, or auto: "
        "measured on the training set and stored in the checkpoint (default: auto)"
    )
    encoder_layers: Optional[int] = _option("encoder layers")
    encoder_embed_dim: Optional[int] = _option("width D of the encoder")
    encoder_ffn_embed_dim: Optional[int] = _option("inner width of the encoder's feed-forward layers")
    encoder_attention_heads: Optional[int] = _option("heads H of the encoder")
    encoder_layerdrop: float = _option("LayerDrop probability of the encoder", default=0.0)
    share_all_embeddings: bool = _option("one embedding for source, target and output", default=False)
    encoder_embed_path: Optional[str] = _option("pre-trained encoder embeddings, a text file")
    max_source_positions: Optional[int] = II("task.max_source_positions")


def _with_mixer_options(class_name, base):
    """A dataclass `class_name` of the options of `base` plus the options of all registered mixers, each None until set.

    An option that may differ between layers is text, such as "4,8,16": see :func:`of_layer`.
    """
    clashes = {option.name for option in dataclasses.fields(base)} & option_fields().keys()
    if clashes:
        raise ValueError(f"mixers declare options that the model has already: {', '.join(sorted(clashes))}")
    fields = [
        (name, Optional[str if per_layer(option) else option.type], field(default=None, metadata=dict(option.metadata)))
        for name, option in option_fields().items()
    ]
    return dataclasses.make_dataclass(class_name, fields, bases=(base,))


def per_layer(option):
    """Whether the layers of a side may have different values of a mixer's option (a dataclasses.Field)."""
    return option.metadata.get("per_layer", False)


MixerTransformerConfig = _with_mixer_options("MixerTransformerConfig", _TransformerOptions)
MixerLanguageModelConfig = _with_mixer_options("MixerLanguageModelConfig", _LanguageModelOptions)


def apply_arch(cfg, mixer, size):
    """Fill what the user left open with the architecture's values, then check the whole.

    Args:
        cfg: Namespace or DictConfig with the fields of :data:`MixerTransformerConfig`. Changed in place;
            a second call changes nothing.
        mixer: name of the mixer for encoder and decoder self-attention.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.

    Raises:
        UsageError: the task is none of translation; or see :func:`check`.
    """
    arch = f"{get_mixer(mixer).arch}_{size}"
    _check_task(cfg, "max_source_positions", f"{arch} is a translation model", "translation")
    shape = SIZES[size]
    # A mixer that cannot stand in the decoder (FourierNet) leaves it to attention.
    decoder = mixer if "decoder" in get_mixer(mixer).places else "attention"
    values = {"encoder_self_mixer": mixer, "decoder_self_mixer": decoder, "cross_mixer": "attention"}
    for side in ("encoder", "decoder"):
        values |= shape.of_side(side)
    values |= {"activation_fn": "relu", "dropout": shape.dropout}
    _complete(cfg, values, MixerTransformerConfig, lambda mixer, option: of_arch(mixer, option, shape))
    if cfg.length_ratio is not None and not mixer_at(cfg, "cross").reads_length_ratio:
        raise UsageError(
            f"--length-ratio {cfg.length_ratio}: --cross-mixer {mixer_at(cfg, 'cross').name} does not read it. "
            "Leave it out or choose another mixer there."
        )
    check(cfg)


def apply_gpt_arch(cfg, mixer, size):
    """As :func:`apply_arch` for the language models of Translution (Fan et al., 2025) Table 7.

    Args:
        cfg: Namespace or DictConfig with the fields of :data:`MixerLanguageModelConfig`.
        mixer: name of the mixer.
        size: one of :data:`posnet_fairseq.transformer.sizes.GPT_SIZES`.

    Raises:
        UsageError: the task is none of language modelling; or see :func:`check`.
    """
    _check_task(cfg, "tokens_per_sample", f"gpt_{size}_{mixer} is a language model", "language_modeling")
    if cfg.tokens_per_sample < 1:
        raise UsageError(f"--tokens-per-sample {cfg.tokens_per_sample}: give 1 or more, such as 160.")
    shape = GPT_SIZES[size]
    # Sentences are blocks of --tokens-per-sample, unless the task limits them otherwise.
    longest = cfg.tokens_per_sample + bool(getattr(cfg, "add_bos_token", False))
    _fill(cfg, {"decoder_self_mixer": mixer, "max_target_positions": longest})
    values = shape.of_side("decoder") | {"activation_fn": "gelu", "dropout": shape.dropout}
    if mixer_at(cfg, "decoder").position_embedding != "none":
        values["position_embedding"] = "learned"
    # Translution is the paper's own here: every offset in every layer.
    _complete(cfg, values, MixerLanguageModelConfig, lambda _, option: getattr(shape, option.name, option.default))
    check(cfg)


def _check_task(cfg, option, what, task):
    if not isinstance(getattr(cfg, option, None), int):
        given = getattr(cfg, "task", None)
        raise UsageError(f"--arch {what}, which --task {given} cannot train. Give --task {task}, or another --arch.")


def _complete(cfg, values, config, option_value):
    """Fill what the user left open.

    Args:
        cfg: as for :func:`apply_arch`.
        values: dict from names of the architecture's own options to their values.
        config: the dataclass of all options; the others have its defaults.
        option_value: function of a mixer and one of its options (a dataclasses.Field), to the option's value.

    Raises:
        UsageError: the user gave an option that none of the chosen mixers reads.
    """
    _fill(cfg, {option.name: option.default for option in dataclasses.fields(config)})
    _fill(cfg, values)
    _fill(cfg, {"attention_dropout": cfg.dropout})
    mixers = list(dict.fromkeys(mixer_at(cfg, place) for place in places(cfg)))
    read = {}
    for mixer in mixers:
        for option in dataclasses.fields(mixer.Config):
            read.setdefault(option.name, option_value(mixer, option))
    for name in option_fields().keys() - read.keys():
        _check_unread(cfg, name, mixers)
    _fill(cfg, read)


def _check_unread(cfg, name, mixers):
    if getattr(cfg, name) not in (None, False):
        raise UsageError(
            f"{flag(name)} {getattr(cfg, name)}: none of the chosen mixers "
            f"({', '.join(sorted(mixer.name for mixer in mixers))}) reads it. Leave it out or choose another."
        )


def _fill(cfg, values):
    # A command line leaves out of its Namespace what was not given, a DictConfig has None there.
    for name, value in values.items():
        if getattr(cfg, name, None) is None:
            setattr(cfg, name, value)


def places(cfg):
    """Where a model has mixers: a language model has no encoder and no cross-attention."""
    return [place for place, option in PLACE_OPTIONS.items() if getattr(cfg, option, None) is not None]


def mixer_at(cfg, place):
    """The mixer class that the options put at `place`."""
    option = PLACE_OPTIONS[place]
    return get_mixer(getattr(cfg, option), flag(option))


def _side(place):
    return "encoder" if place == "encoder" else "decoder"


def of_layer(name, value, layer, layers):
    """The value that one layer has of an option given as "16" for all or as "4,8,16" for each of them.

    Raises:
        UsageError: there are not as many values as layers, or one is no whole number.
    """
    values = str(value).split(",")
    if not all(re.fullmatch(r"\s*-?\d+\s*", number) for number in values):
        raise UsageError(f"{name} {value}: give a whole number such as 16, or one for each layer such as 4,8,16.")
    if len(values) not in (1, layers):
        raise UsageError(
            f"{name} {value}: these are {len(values)} values for {layers} layers. Give one for all layers or one for "
            "each; encoder and decoder need the same number of layers then."
        )
    return values[layer if len(values) > 1 else 0].strip()


def mixer_settings(cfg, place, layer, projection_bias=True):
    """How the mixer at `place` in layer `layer` is to be built, a :class:`MixerSettings`."""
    mixer, side = mixer_at(cfg, place), _side(place)
    gate = cfg.cross_gate or "none" if place == "cross" else cfg.gate or mixer.default_gate
    chosen = {}
    for option in dataclasses.fields(mixer.Config):
        value = getattr(cfg, option.name)
        if value is not None and per_layer(option):
            name = flag(option.name)
            value = of_layer(name, value, layer, getattr(cfg, f"{side}_layers"))
        if value is not None:
            chosen[option.name] = value
    return MixerSettings(
        place=place,
        embed_dim=getattr(cfg, f"{side}_embed_dim"),
        memory_dim=cfg.encoder_embed_dim if place == "cross" else getattr(cfg, f"{side}_embed_dim"),
        num_heads=getattr(cfg, f"{side}_attention_heads"),
        max_positions=cfg.max_source_positions if place == "encoder" else cfg.max_target_positions,
        dropout=cfg.attention_dropout,
        gate=str(gate),
        options=configure(mixer.Config, chosen),
        projection_bias=projection_bias,
    )


def build_mixer(cfg, place, layer, projection_bias=True):
    """The mixer module that stands at `place` in layer `layer`."""
    return mixer_at(cfg, place).in_layer(mixer_settings(cfg, place, layer, projection_bias), layer)


def position_readers(cfg, side):
    """The mixers that want position vectors of one side of the model: a list of classes, self-attention's first."""
    if "cross" not in places(cfg):
        return [mixer_at(cfg, side)] * mixer_at(cfg, side).reads_positions
    cross = mixer_at(cfg, "cross")
    reads = cross.reads_positions if side == "decoder" else cross.reads_memory_positions
    return [mixer_at(cfg, side)] * mixer_at(cfg, side).reads_positions + [cross] * reads


def position_kind(cfg, side):
    """The kind of position embedding of one side: as given, else as the mixers that read it have it by default."""
    default = (*position_readers(cfg, side), mixer_at(cfg, side))[0].position_embedding
    return str(cfg.position_embedding or default)


def check(cfg):
    """Refuse options that make no model, before any data is read.

    Raises:
        UsageError: with the option, the value, and what is allowed.
    """
    sides = dict.fromkeys(map(_side, places(cfg)))
    for place in places(cfg):
        mixer = mixer_at(cfg, place)
        if place not in mixer.places:
            allowed = [name for name in mixer_names() if place in get_mixer(name).places]
            raise UsageError(
                f"{flag(PLACE_OPTIONS[place])} {mixer.name}: this mixer cannot stand there. "
                f"Choose one of: {', '.join(allowed)}."
            )
    layerdrops = [f"{side}_layerdrop" for side in sides]
    for name in ("dropout", "attention_dropout", "activation_dropout", *layerdrops):
        if not isinstance(getattr(cfg, name), Real) or not 0 <= getattr(cfg, name) < 1:
            raise UsageError(f"{flag(name)} {getattr(cfg, name)}: give 0 or more and less than 1.")
    for side in sides:
        for name, most in MOST.items():
            _check_count(cfg, f"{side}_{name}", most)
        limit = "max_source_positions" if side == "encoder" else "max_target_positions"
        _check_count(cfg, limit, MOST_POSITIONS, ", such as 128")
        width, heads = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_attention_heads")
        if width % heads:
            raise UsageError(
                f"--{side}-attention-heads {heads}: the width {width} of the {side} does not divide by it. "
                f"Choose a number of heads that does, or change --{side}-embed-dim."
            )
    _check_parameters(cfg, sides)
    for name, allowed in (
        ("gate", GATES),
        ("cross_gate", GATES),
        ("position_embedding", POSITION_EMBEDDINGS),
        ("activation_fn", get_available_activation_fns()),
    ):
        value = getattr(cfg, name, None)
        if value is not None and str(value) not in allowed:
            raise UsageError(f"{flag(name)} {value}: choose one of {', '.join(allowed)}.")
    for place in places(cfg):
        for layer in range(getattr(cfg, f"{_side(place)}_layers")):
            mixer_at(cfg, place).check(mixer_settings(cfg, place, layer))
    for side in sides:
        readers = position_readers(cfg, side)
        if readers and position_kind(cfg, side) == "none":
            raise UsageError(
                f"--position-embedding none: {readers[0].name} computes its weights from position embeddings. "
                "Choose sinusoidal or learned."
            )
    if "cross" in places(cfg) and mixer_at(cfg, "cross").reads_length_ratio:
        length_ratio.parse(cfg.length_ratio)


def _check_count(cfg, name, most, example=""):
    value = getattr(cfg, name)
    if not isinstance(value, Integral):
        raise UsageError(f"{flag(name)} {value}: give a whole number{example}.")
    if value < 1:
        raise UsageError(f"{flag(name)} {value}: give 1 or more{example}.")
    if value > most:
        raise UsageError(f"{flag(name)} {value}: give at most {most}{example}.")


def _check_parameters(cfg, sides):
    """Refuse sizes that are possible one by one and absurd together."""
    for side in sides:
        layers, width, inner = (getattr(cfg, f"{side}_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim"))
        parameters = layers * 2 * width * (width + inner)  # every layer has two matrices of each kind, at least
        if parameters > MOST_PARAMETERS:
            raise UsageError(
                f"--{side}-layers {layers}, --{side}-embed-dim {width} and --{side}-ffn-embed-dim {inner} make "
                f"{parameters:.0e} parameters or more. Choose smaller ones: the limit is {MOST_PARAMETERS:.0e}."
            )
