"""The encoder-decoder model and its architectures, every registered mixer times every size."""

import functools
from collections.abc import Mapping
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderDecoderModel, register_model, register_model_architecture

from posnet_fairseq.analog.weight_noise import add_weight_noise, check_weight_noise
from posnet_fairseq.fairseq_plugin.flags import MixerTransformerConfig
from posnet_fairseq.fairseq_plugin.freezing import freeze
from posnet_fairseq.fairseq_plugin.interface import ExplainedLoading, MixerDecoder, MixerEncoder, word_embedding
from posnet_fairseq.inference import measured_length_ratio
from posnet_fairseq.inference.stored_energies import is_precomputed
from posnet_fairseq.inference.weights import refuse_other_length_ratio
from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS, check_probability
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.architectures import apply_arch, archs
from posnet_fairseq.transformer.length_ratio_option import parse
from posnet_fairseq.transformer.option_checks import checked_mixers
from posnet_fairseq.transformer.placement import places, reads_length_ratio

MODEL_NAME = "mixer_transformer"


@register_model(MODEL_NAME, dataclass=MixerTransformerConfig)
class MixerTransformer(ExplainedLoading, FairseqEncoderDecoderModel):
    """A pre-norm Transformer whose attention may be any registered token mixer in each of its three places.

    It is not made for TorchScript: fairseq's beam search runs it as it is.
    """

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "MixerTransformer":
        """Build a model for a fairseq task with two dictionaries, of the options that :func:`apply_arch` completed."""
        if len(places(cfg)) < len(PLACE_OPTIONS):
            raise UsageError(
                f"{MODEL_NAME} is the family of all architectures, not one of them. "
                "Give one with a size, such as --arch rposnet_base."
            )
        mixers = checked_mixers(cfg)
        check_weight_noise(cfg)
        check_probability("subword_dropout", cfg.subword_dropout)
        source, target = task.source_dictionary, task.target_dictionary
        if cfg.share_all_embeddings:
            _check_shared(cfg, source, target)
        encoder_embedding = decoder_embedding = word_embedding(cfg, source, "encoder")
        if not cfg.share_all_embeddings:
            decoder_embedding = word_embedding(cfg, target, "decoder")
        ratio = measured_length_ratio.of_model(cfg, task) if reads_length_ratio(cfg) else None
        decoder = MixerDecoder(cfg, target, decoder_embedding, ratio, mixers)
        model = cls(MixerEncoder(cfg, source, encoder_embedding, mixers["encoder"]), decoder)
        model.store_mixers()
        add_weight_noise(model, cfg)
        freeze(model, cfg.freeze)
        model.given_length_ratio = parse(cfg.length_ratio)
        return model

    def train(self, mode: bool = True) -> "MixerTransformer":
        """Switch between training and evaluation; a precomputed model cannot be trained."""
        if mode and is_precomputed(self):
            raise UsageError(
                "this checkpoint was precomputed for inference and cannot be trained. Give the one that it was made of."
            )
        return super().train(mode)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights, unless they were trained with another length ratio than the options give."""
        refuse_other_length_ratio(self.given_length_ratio, state_dict.get("decoder.length_ratio_version"))
        return super().load_state_dict(state_dict, *args, **kwargs)


def _check_shared(cfg: Any, source: Dictionary, target: Dictionary) -> None:
    if source != target:
        raise UsageError(
            "--share-all-embeddings: the data has two different dictionaries. Binarize it with "
            "fairseq-preprocess --joined-dictionary, or use --share-decoder-input-output-embed."
        )
    if cfg.encoder_embed_dim != cfg.decoder_embed_dim:
        raise UsageError(
            f"--share-all-embeddings: the encoder is {cfg.encoder_embed_dim} wide and the decoder "
            f"{cfg.decoder_embed_dim}. Give both the same width."
        )
    if cfg.decoder_embed_path and cfg.decoder_embed_path != cfg.encoder_embed_path:
        raise UsageError("--share-all-embeddings: give --encoder-embed-path alone, it serves both sides.")


for _arch, (_mixer, _size) in archs().items():
    register_model_architecture(MODEL_NAME, _arch)(functools.partial(apply_arch, mixer=_mixer, size=_size))
