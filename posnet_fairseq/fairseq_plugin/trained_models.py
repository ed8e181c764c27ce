"""The models of checkpoints."""

import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.inference.checkpoints import (
    POSITION_LIMITS,
    State,
    Weights,
    about,
    model_options,
    read_checkpoint,
    refuse_language_model,
    vocabulary_sizes,
)
from posnet_fairseq.inference.vocabularies import (
    read_language_model_vocabulary,
    read_vocabulary,
    refuse_other_dictionaries,
    refuse_other_tasks,
)
from posnet_fairseq.models.mixer_language_model import MixerLanguageModel
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Vocabulary


def build_model(state: State, vocabulary: Vocabulary | None = None, max_length: int | None = None) -> MixerTransformer:
    """The translation model of a checkpoint's content, in evaluation mode.

    Args:
        state: content that :func:`posnet_fairseq.inference.checkpoints.read_checkpoint` returned.
        vocabulary: its dictionaries. Default: invented ones of the right sizes.
        max_length: most source and target tokens that its positions are cut to. Default: as it was trained.

    Raises:
        UsageError: it is a language model, or options, weights and dictionaries do not fit.
    """
    refuse_language_model(state)
    weights, options = state["model"], model_options(state)
    _refuse_other_depth(weights, options)
    options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    if max_length is not None:
        options |= dict.fromkeys(POSITION_LIMITS, max_length)
    if vocabulary is None:
        source, target = map(synthetic.dictionary, vocabulary_sizes(weights))
        vocabulary = Vocabulary("", "", source, target)
    model = MixerTransformer.build_model(Namespace(**options), vocabulary)
    if max_length is not None:
        limits = {name: tensor.shape for name, tensor in model.state_dict().items()}
        weights = {name: tensor[tuple(map(slice, limits.get(name, tensor.shape)))] for name, tensor in weights.items()}
    model.load_state_dict(weights)
    return model.eval()


def build_language_model(state: State, vocabulary: Vocabulary | None = None) -> MixerLanguageModel:
    """The language model of a checkpoint's content, in evaluation mode.

    Args:
        state: content that :func:`posnet_fairseq.inference.checkpoints.read_checkpoint` returned.
        vocabulary: its dictionary, in both places. Default: an invented one of the right size.

    Raises:
        UsageError: options, weights and dictionary do not fit.
    """
    weights, options = state["model"], model_options(state) | {"decoder_embed_path": None}
    _refuse_other_depth(weights, options)
    if vocabulary is None:
        _, words = vocabulary_sizes(weights)
        dictionary = synthetic.dictionary(words)
        vocabulary = Vocabulary("", "", dictionary, dictionary)
    model = MixerLanguageModel.build_model(Namespace(**options), vocabulary)
    model.load_state_dict(weights)
    return model.eval()


def load_models(
    paths: Sequence[str | Path], data: str | Path | None = None
) -> tuple[list[MixerTransformer], Vocabulary, Path]:
    """The translation models of checkpoints, in evaluation mode.

    Args:
        paths: checkpoints; several make an ensemble.
        data: directory with the dictionaries. Default: the one that the first model was trained on.

    Returns:
        models, their vocabulary, and the directory that it was read from.

    Raises:
        UsageError: a checkpoint cannot be used, there are no dictionaries, or they do not fit.
    """
    states = {path: read_checkpoint(path) for path in map(str, paths)}
    for path, state in states.items():
        with about(path):
            refuse_language_model(state)
    vocabulary, folder = read_vocabulary(states[str(paths[0])], data)
    refuse_other_tasks(states, vocabulary)
    models = []
    for path in map(str, paths):
        with about(path):
            models.append(build_model(states[path], vocabulary))
    for path, state in states.items():
        refuse_other_dictionaries(path, state, vocabulary, folder)
    return models, vocabulary, folder


def load_language_model(
    path: str | Path, data: str | Path | None = None
) -> tuple[MixerLanguageModel, Vocabulary, Path]:
    """The language model of a checkpoint, in evaluation mode.

    Args:
        path: checkpoint.
        data: directory with the dictionary. Default: the one that the model was trained on.

    Returns:
        model, its vocabulary, and the directory that it was read from.

    Raises:
        UsageError: the checkpoint cannot be used, there is no dictionary, or it does not fit.
    """
    state = read_checkpoint(path)
    vocabulary, folder = read_language_model_vocabulary(state, data)
    with about(path):
        return build_language_model(state, vocabulary), vocabulary, folder


def _refuse_other_depth(weights: Weights, options: dict[str, Any]) -> None:
    """Refuse layers that have no weights before they are built."""
    for side in ("encoder", "decoder"):
        layers = options.get(f"{side}_layers", 0)
        numbers = (re.match(rf"{side}\.layers\.(\d{{1,9}})\.", name) for name in weights)
        stored = max((int(number[1]) + 1 for number in numbers if number), default=0)
        if layers != stored:
            raise UsageError(
                f"the checkpoint does not fit its options: they say {layers} layers of the {side}, and it has weights "
                f"of {stored}. Take another checkpoint."
            )
