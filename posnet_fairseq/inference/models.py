"""The models of checkpoints and model folders, built with torch alone."""

import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posnet_fairseq.inference.checkpoints import (
    POSITION_LIMITS,
    State,
    Weights,
    about,
    is_language_model,
    model_arch,
    model_options,
    refuse_language_model,
    vocabulary_sizes,
)
from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.inference.recorded_search import recorded_search
from posnet_fairseq.inference.vocabularies import (
    read_language_model_vocabulary,
    read_vocabulary,
    refuse_other_dictionaries,
    refuse_other_tasks,
)
from posnet_fairseq.inference.weights import fitting_weights, refuse_other_length_ratio
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary
from posnet_fairseq.transformer import model as architecture
from posnet_fairseq.transformer.language_model import LanguageModel
from posnet_fairseq.transformer.length_ratio_option import parse
from posnet_fairseq.transformer.model import Transformer

Model = TypeVar("Model", bound=nn.Module)


def build_model(state: State, vocabulary: Vocabulary | None = None, max_length: int | None = None) -> Transformer:
    """The translation model of a checkpoint's content, in evaluation mode.

    Args:
        state: content that :func:`posnet_fairseq.inference.model_folder.read_model` returned.
        vocabulary: its dictionaries. Default: whatever the weights were trained with.
        max_length: most source and target tokens that its positions are cut to. Default: as it was trained.

    Raises:
        UsageError: it is a language model, or options, weights and dictionaries do not fit.
    """
    refuse_language_model(state)
    weights, options = state["model"], _options(state)
    if max_length is not None:
        options |= dict.fromkeys(POSITION_LIMITS, max_length)
    words = [max(words, Dictionary.nspecial) for words in vocabulary_sizes(weights)]
    if vocabulary is not None:
        words = [len(vocabulary.source_dictionary), len(vocabulary.target_dictionary)]
        if options["share_all_embeddings"] and vocabulary.source_dictionary != vocabulary.target_dictionary:
            raise UsageError(
                "the model has one dictionary for both languages, and those that are there differ. Give the data "
                "directory that it was trained on."
            )
    refuse_other_length_ratio(parse(options["length_ratio"]), weights.get("decoder.length_ratio_version"))

    def build() -> Transformer:
        return architecture.build_transformer(Namespace(**options), *words)

    if max_length is not None:
        with torch.device("meta"), NoRandomNumbers():
            limits = {name: tensor.shape for name, tensor in build().state_dict().items()}
        weights = {name: tensor[tuple(map(slice, limits.get(name, tensor.shape)))] for name, tensor in weights.items()}
    return _with_weights(build, weights)


def build_language_model(state: State, vocabulary: Vocabulary | None = None) -> LanguageModel:
    """The language model of a checkpoint's content, in evaluation mode.

    Args:
        state: content that :func:`posnet_fairseq.inference.model_folder.read_model` returned.
        vocabulary: its dictionary, in both places. Default: whatever the weights were trained with.

    Raises:
        UsageError: it is a translation model, or options, weights and dictionary do not fit.
    """
    if not is_language_model(state):
        raise UsageError(f"a checkpoint of {model_arch(state)} was given, a translation model. Give a language model.")
    options = _options(state)
    words = max(vocabulary_sizes(state["model"])[1], Dictionary.nspecial)
    if vocabulary is not None:
        words = len(vocabulary.target_dictionary)

    def build() -> nn.ModuleDict:
        # The names of its weights begin as those of a translation model's decoder.
        return nn.ModuleDict({"decoder": architecture.build_language_model(Namespace(**options), words)})

    model: Any = _with_weights(build, state["model"])
    return model["decoder"]


def weights_of(model: Transformer | LanguageModel, state: State) -> Weights:
    """The weights of a precomputed model as its checkpoint has them: under the same names, in the same precision.

    Args:
        model: which is changed.
        state: content of its checkpoint or folder.

    Raises:
        UsageError: a weight is infinite or NaN in that precision.
    """
    dtype = state["model"]["decoder.embed_tokens.weight"].dtype
    whole = model if isinstance(model, Transformer) else nn.ModuleDict({"decoder": model})
    weights = whole.to(dtype).state_dict()
    if not all(weight.isfinite().all() for weight in weights.values()):
        raise UsageError(
            f"its tables would hold infinite numbers or none in {dtype}. Translate with it as it is, or take an "
            "earlier checkpoint."
        )
    return weights


def load_models(
    paths: Sequence[str | Path], data: str | Path | None = None
) -> tuple[list[Transformer], Vocabulary, Path, dict[str, Any]]:
    """Translation models, in evaluation mode.

    Args:
        paths: checkpoints and model folders; several make an ensemble.
        data: directory with the dictionaries. Default: the first model's folder, or the directory that it was trained
            on.

    Returns:
        models, their vocabulary, the directory that it was read from, and the search settings that the first model
        records, by name.

    Raises:
        UsageError: a model cannot be used, there are no dictionaries, or they do not fit.
    """
    states = {path: read_model(path) for path in map(str, paths)}
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
    return models, vocabulary, folder, recorded_search(states[str(paths[0])])


def load_language_model(path: str | Path, data: str | Path | None = None) -> tuple[LanguageModel, Vocabulary, Path]:
    """A language model, in evaluation mode.

    Args:
        path: checkpoint or model folder.
        data: directory with the dictionary. Default: the model's folder, or the directory that it was trained on.

    Returns:
        model, its vocabulary, and the directory that it was read from.

    Raises:
        UsageError: the model cannot be used, there is no dictionary, or it does not fit.
    """
    state = read_model(path)
    with about(path):
        if not is_language_model(state):
            build_language_model(state)  # says what it is
    vocabulary, folder = read_language_model_vocabulary(state, data)
    with about(path):
        return build_language_model(state, vocabulary), vocabulary, folder


def _options(state: State) -> dict[str, Any]:
    """The options to build the model with, whose layers all have weights."""
    options = model_options(state)
    refuse_other_depth(state["model"], options)
    return options


# Within torch.nn.init functions no mode sees the methods of tensors.
_DRAWING = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


class NoRandomNumbers(TorchFunctionMode):
    """Nothing is drawn for weights that are loaded at once: a second for a model of 60 million of them.

    On the meta device, drawing would also import all of torch's compiler.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _DRAWING:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _with_weights(build: Callable[[], Model], weights: Weights) -> Model:
    """A model in evaluation mode, whose parameters are the given weights themselves where the precision is the same.

    No memory is taken for it before they are known to fit.

    Raises:
        UsageError: they do not fit.
    """
    with torch.device("meta"), NoRandomNumbers():
        sketch = build()
    weights = fitting_weights(sketch, weights)
    with NoRandomNumbers():
        model = build()
    model.load_state_dict(_in_place_of(model.state_dict(keep_vars=True), weights), assign=True)
    return model.eval()


def _in_place_of(own: Mapping[str, Tensor], weights: Weights) -> Weights:
    """The weights in the precision of a model's own, those that its modules share as one parameter."""
    parameters: dict[int, nn.Parameter] = {}

    def fitted(old: Tensor, new: Tensor) -> Tensor:
        new = new.to(old.dtype)
        if not isinstance(old, nn.Parameter):
            return new
        return parameters.setdefault(id(old), nn.Parameter(new, old.requires_grad))

    return {name: fitted(own[name], weight) if name in own else weight for name, weight in weights.items()}


def refuse_other_depth(weights: Weights, options: dict[str, Any]) -> None:
    """Refuse layers that have no weights before they are built.

    Args:
        weights: of a checkpoint, by name.
        options: of its model.

    Raises:
        UsageError: the options say another number of layers.
    """
    for side in ("encoder", "decoder"):
        layers = options.get(f"{side}_layers", 0)
        numbers = (re.match(rf"{side}\.layers\.(\d{{1,9}})\.", name) for name in weights)
        stored = max((int(number[1]) + 1 for number in numbers if number), default=0)
        if layers != stored:
            raise UsageError(
                f"the checkpoint does not fit its options: they say {layers} layers of the {side}, and it has weights "
                f"of {stored}. Take another checkpoint."
            )
