"""The models of checkpoints as fairseq's own, for fairseq's search."""

from argparse import Namespace

from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.inference.checkpoints import State, model_options, refuse_language_model, vocabulary_sizes
from posnet_fairseq.inference.models import refuse_other_depth
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.text.dictionary import Vocabulary


def build_model(state: State) -> MixerTransformer:
    """The translation model of a checkpoint's content, with dictionaries of invented words, in evaluation mode.

    Args:
        state: content that :func:`posnet_fairseq.inference.checkpoints.read_checkpoint` returned.

    Raises:
        UsageError: it is a language model, or options and weights do not fit.
    """
    refuse_language_model(state)
    weights, options = state["model"], model_options(state)
    refuse_other_depth(weights, options)
    options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    vocabulary = Vocabulary("", "", *map(synthetic.dictionary, vocabulary_sizes(weights)))
    model = MixerTransformer.build_model(Namespace(**options), vocabulary)
    model.load_state_dict(weights)
    return model.eval()
