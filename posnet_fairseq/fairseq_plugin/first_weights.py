"""The weights that a fine-tuning begins with, also for other words, another language pair or the other direction."""

import contextlib
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils
from torch import Tensor, nn

from posnet_fairseq.fairseq_plugin.interface import ExplainedLoading
from posnet_fairseq.fairseq_plugin.repairs import replaces
from posnet_fairseq.inference.checkpoints import EMBEDDINGS, State, Weights, vocabulary_sizes
from posnet_fairseq.inference.vocabularies import data_folder, languages_of
from posnet_fairseq.inference.weights import other_weights
from posnet_fairseq.shared.errors import UsageError, about
from posnet_fairseq.text.dictionary import Dictionary, dictionary_file

logger = logging.getLogger(__name__)
_RATIO = "decoder.length_ratio_version"
_SIDES = {"source": "encoder", "target": "decoder"}


def first_weights(state: State, model: nn.Module, task: Any) -> tuple[Weights, list[str]]:
    """Return the weights with which a model of a fairseq task begins after a checkpoint, and sentences on other words.

    On a side whose dictionary is another one, the rows of words that both dictionaries have, and of special symbols,
    are those of the checkpoint on the same side; the others stay as the model has drawn them. With another dictionary,
    pair or direction, γ is the model's, too.
    """
    weights, parameters = dict(state["model"]), dict(model.named_parameters(remove_duplicate=False))
    for one, other in itertools.combinations(EMBEDDINGS, 2):
        is_tied = one in parameters and parameters[one] is parameters.get(other)
        if is_tied and {one, other} <= weights.keys() and not torch.equal(weights[one], weights[other]):
            raise UsageError(
                f"the model has {one} and {other} in one, and the checkpoint has two. Leave out --share-all-embeddings "
                "or --share-decoder-input-output-embed, or prepare the text with a dictionary for each language."
            )
    now = tuple(getattr(getattr(task, "cfg", None), f"{side}_lang", "") for side in _SIDES)
    before = languages_of(state) or now
    changed, counts = before != now, {}
    for number, (side, name) in enumerate(_SIDES.items()):
        if not hasattr(model, name):
            continue
        words: Any = model.get_submodule(name).dictionary
        path, size = data_folder(state) / dictionary_file(before[number]), vocabulary_sizes(weights)[number]
        own = _dictionary(path, size)
        if own is None and (size != len(words) or before[number] != now[number]):
            raise UsageError(
                f"the {side} dictionary has {len(words)} entries, but the checkpoint was trained with {size}, and its "
                f"own, {path}, is gone or has changed. Put it back: it tells which words the checkpoint has."
            )
        if own is None or own.symbols == words.symbols:
            continue
        special = own.nspecial  # these have the same numbers, and 0 is not that of a word
        found = [(number, own.indices.get(symbol, 0)) for number, symbol in enumerate(words.symbols)]
        rows = [*((row, row) for row in range(special)), *(row for row in found if min(row) >= special)]
        for each in EMBEDDINGS:
            if each.startswith(name) and each in parameters and each in weights:
                if weights[each].shape[1:] != parameters[each].shape[1:]:
                    raise other_weights(state["model"], model)
                weights[each] = _with_rows(parameters[each], weights[each], rows)
        is_joint = parameters[EMBEDDINGS[1]] is parameters.get(EMBEDDINGS[0])
        counts["both sides" if is_joint else f"the {side}"] = len(rows), len(words), size
        changed = True
    if changed and _RATIO in weights:
        weights[_RATIO] = torch.tensor(model.get_submodule("decoder").length_ratio)
    return weights, [
        f"words of {whose}: {copied:,} of {all_of_them:,} begin with their rows of the checkpoint, which has {size:,}, "
        f"and {all_of_them - copied:,} as drawn"
        for whose, (copied, all_of_them, size) in counts.items()
    ]


def _dictionary(path: Path, size: int) -> Dictionary | None:
    """Return a model's own dictionary, None if it is gone or no longer that of `size` rows."""
    with contextlib.suppress(OSError, UsageError):
        if len(found := Dictionary.load(path)) == size:
            return found
    return None


def _with_rows(drawn: Tensor, trained: Tensor, rows: list[tuple[int, int]]) -> Tensor:
    """Return a matrix as drawn, with rows, numbered in it and in the trained one, of the latter."""
    # Of a model on the meta device, nothing is drawn.
    matrix = torch.zeros(drawn.shape) if drawn.is_meta else drawn.detach().clone()
    to, of = torch.tensor(rows).T
    matrix[to.to(matrix.device)] = trained[of].to(matrix)
    return matrix


@replaces(checkpoint_utils, "load_checkpoint")
def begin_with_words_of_both(load: Callable, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Let ``--finetune-from-model`` take checkpoints with other dictionaries, see :func:`first_weights`.

    If the sizes are equal, fairseq itself loads each row for whatever word has its number; otherwise it fails.
    """
    read, model = checkpoint_utils.load_checkpoint_to_cpu, trainer.get_model()  # several processes wrap trainer.model

    def read_and_fit(path: str, *args: Any, **options: Any) -> State:
        state = read(path, *args, **options)
        if path == cfg.finetune_from_model and isinstance(model, ExplainedLoading):
            with about(path):
                state["model"], sentences = first_weights(state, model, trainer.task)
            for sentence in sentences:
                logger.info(sentence)
        return state

    with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", read_and_fit):
        return load(cfg, trainer, **kwargs)
