"""Language models and their architectures: the GPTs of the Translution paper, with every mixer of a decoder."""

import functools
from typing import Any

from fairseq.models import FairseqLanguageModel, register_model, register_model_architecture

from posnet_fairseq.fairseq_plugin.flags import MixerLanguageModelConfig
from posnet_fairseq.fairseq_plugin.interface import ExplainedLoading, MixerLanguageModelDecoder, word_embedding
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.architectures import apply_gpt_arch, gpt_archs
from posnet_fairseq.transformer.option_checks import checked_mixers

MODEL_NAME = "mixer_language_model"


@register_model(MODEL_NAME, dataclass=MixerLanguageModelConfig)
class MixerLanguageModel(ExplainedLoading, FairseqLanguageModel):
    """A pre-norm decoder whose self-attention may be any token mixer, for fairseq's task ``language_modeling``."""

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "MixerLanguageModel":
        """Build a model for a fairseq task with one dictionary; :func:`apply_gpt_arch` completed its options."""
        if cfg.decoder_self_mixer is None:
            raise UsageError(
                f"{MODEL_NAME} is the family of all language models, not one of them. "
                "Give an architecture, such as --arch gpt_a_attention."
            )
        mixers = checked_mixers(cfg)
        dictionary = task.target_dictionary
        if len(dictionary) < len(task.source_dictionary):
            raise UsageError(
                f"--output-dictionary-size {len(dictionary)}: these models predict every word that they read. "
                "Leave it out."
            )
        for target in {"self", "past"}.intersection(getattr(task, "targets", ())):
            raise UsageError(f"--{target}-target: these models predict the next token, and no other. Leave it out.")
        embedding = word_embedding(cfg, task.source_dictionary, "decoder")
        model = cls(MixerLanguageModelDecoder(cfg, dictionary, embedding, mixers["decoder"]))
        model.store_mixers()
        return model


for _arch, (_mixer, _size) in gpt_archs().items():
    register_model_architecture(MODEL_NAME, _arch)(functools.partial(apply_gpt_arch, mixer=_mixer, size=_size))
