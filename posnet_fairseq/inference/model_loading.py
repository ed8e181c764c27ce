"""The models of checkpoints and model folders, built with torch alone."""

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posnet_fairseq.inference import checkpoints
from posnet_fairseq.inference.checkpoints import State, Weights, is_language_model
from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.inference.search.search_settings import recorded_search
from posnet_fairseq.inference.vocabularies import read_vocabulary, refuse_other_dictionaries, refuse_other_tasks
from posnet_fairseq.inference.weights import check_weights, other_weights, refuse_other_length_ratio
from posnet_fairseq.shared.errors import UsageError, about, counted
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary
from posnet_fairseq.transformer import model as architecture
from posnet_fairseq.transformer.decoder import LanguageModel
from posnet_fairseq.transformer.length_ratio_option import parse
from posnet_fairseq.transformer.model import Transformer


def build_model(state: State, vocabulary: Vocabulary | None = None, max_length: int | None = None) -> Any:
    """Return the translation model or language model of a checkpoint's content, in evaluation mode.

    Its parameters are the weights of the content themselves where the precision is the same.

    Args:
        state: content that :func:`posnet_fairseq.inference.model_folder.read_model` returned.
        vocabulary: its dictionaries. Default: whatever the weights were trained with.
        max_length: most source and target tokens that its positions are cut to. Default: as it was trained.
    """
    weights, cfg = state["model"], checkpoints.model_options(state)
    _refuse_other_depth(weights, cfg)
    if max_length is not None:
        vars(cfg).update(dict.fromkeys(checkpoints.POSITION_LIMITS, max_length))
    words = [max(words, Dictionary.nspecial) for words in checkpoints.vocabulary_sizes(weights)]
    is_translation_model = not is_language_model(state)
    if vocabulary is not None:
        source, target = vocabulary.dictionaries
        words = [len(source), len(target)]
        if is_translation_model and cfg.share_all_embeddings and source != target:
            raise UsageError(
                "the model has one dictionary for both languages, and those that are there differ. Give the data "
                "directory that it was trained on."
            )
    if is_translation_model:
        refuse_other_length_ratio(parse(cfg.length_ratio), weights.get("decoder.length_ratio_version"))

    def build() -> nn.Module:
        if is_translation_model:
            return architecture.build_transformer(cfg, *words)
        # The names of its weights begin as those of a translation model's decoder.
        return nn.ModuleDict({"decoder": architecture.build_language_model(cfg, words[1])})

    with torch.device("meta"), NoRandomNumbers():  # no memory is taken before the weights are known to fit
        sketch = build()
    if max_length is not None:
        limits = {name: tensor.shape for name, tensor in sketch.state_dict().items()}
        weights = {name: tensor[tuple(map(slice, limits.get(name, tensor.shape)))] for name, tensor in weights.items()}
    weights = check_weights(sketch, weights)
    try:
        sketch.load_state_dict({name: weight.to("meta") for name, weight in weights.items()})
    except RuntimeError as error:
        raise other_weights(weights, sketch) from error
    with NoRandomNumbers():
        model: Any = build()
    model.load_state_dict(_in_place_of(model.state_dict(keep_vars=True), weights), assign=True)
    built = model.eval() if is_translation_model else model.eval()["decoder"]
    built.arch = checkpoints.model_arch(state)
    return built


def weights_of(model: Transformer | LanguageModel, state: State) -> Weights:
    """Return the weights of a precomputed model as its checkpoint has them: names and precision. It is changed."""
    dtype = state["model"]["decoder.embed_tokens.weight"].dtype
    whole = model if isinstance(model, Transformer) else nn.ModuleDict({"decoder": model})
    weights = whole.to(dtype).state_dict()
    if not all(weight.isfinite().all() for weight in weights.values()):
        raise UsageError(
            f"its tables would hold infinity or NaN in {dtype}. Translate with it as it is, or take an "
            "earlier checkpoint."
        )
    return weights


def load_models(
    paths: Sequence[str | Path], data: str | Path | None = None, generates: bool | None = False
) -> tuple[list[Any], Vocabulary, Path, dict[str, Any]]:
    """Load translation models, or with `generates` language models, in evaluation mode; several make an ensemble.

    With None it may be either.

    Return them, their vocabulary, the directory that it was read from (`data`, the first model's folder, or where it
    was trained), and the search settings that the first model records, by name.
    """
    states = {path: read_model(path) for path in map(str, paths)}
    for path, state in states.items():
        with about(path):
            if generates is not None:
                checkpoints.refuse_other_kind(state, generates)
    first = states[str(paths[0])]
    vocabulary, folder = read_vocabulary(first, data)
    refuse_other_tasks(states, vocabulary)
    models = []
    for path in map(str, paths):
        with about(path):
            models.append(build_model(states[path], vocabulary))
    for path, state in states.items():
        refuse_other_dictionaries(path, state, vocabulary, folder)
    return models, vocabulary, folder, recorded_search(first)


# Within torch.nn.init functions no mode sees the methods of tensors.
_DRAWING = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


class NoRandomNumbers(TorchFunctionMode):
    """Draws no numbers for weights that are loaded at once: a second for a model of 60 million of them.

    On the meta device, drawing would also import all of torch's compiler.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _DRAWING:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _in_place_of(own: Mapping[str, Tensor], weights: Weights) -> Weights:
    """Return the weights in the precision of a model's own, those that its modules share as one parameter."""
    parameters: dict[int, nn.Parameter] = {}

    def fitted(old: Tensor, new: Tensor) -> Tensor:
        new = new.to(old.dtype)
        if not isinstance(old, nn.Parameter):
            return new
        return parameters.setdefault(id(old), nn.Parameter(new, old.requires_grad))

    return {name: fitted(own[name], weight) if name in own else weight for name, weight in weights.items()}


def _refuse_other_depth(weights: Weights, cfg: Namespace) -> None:
    """Refuse another number of layers than the weights have, before they are built."""
    for side in ("encoder", "decoder"):
        layers = getattr(cfg, f"{side}_layers", 0)
        numbers = (re.match(rf"{side}\.layers\.(\d{{1,9}})\.", name) for name in weights)
        stored = max((int(number[1]) + 1 for number in numbers if number), default=0)
        if layers != stored:
            raise UsageError(
                f"the checkpoint does not fit its options: they say {counted(layers, 'layer')} of the {side}, and it "
                f"has weights of {stored}. Take another checkpoint."
            )
