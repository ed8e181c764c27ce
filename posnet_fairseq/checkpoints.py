"""Reading checkpoints as data and writing them whole.

fairseq's own loader evaluates some options that it finds in a checkpoint, as Python. Here a model is built from
nothing but its tensors and plain values of its own options.
"""

import dataclasses
import zipfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair

from posnet_fairseq import synthetic
from posnet_fairseq.errors import UsageError
from posnet_fairseq.failures import explain_unreadable
from posnet_fairseq.files import check_place, replacing
from posnet_fairseq.model_config import MixerLanguageModelConfig, MixerTransformerConfig
from posnet_fairseq.models.mixer_language_model import MixerLanguageModel, gpt_arch_names
from posnet_fairseq.models.mixer_transformer import MixerTransformer, arch_names

# Facts in the extra_state of checkpoints that posnet's commands made of others.
MADE = ("averaged", "precomputed", "copied")
POSITION_LIMITS = ("max_source_positions", "max_target_positions")


def read_checkpoint(path):
    """The content of a posnet checkpoint, its tensors read from disk only when they are used.

    Only data is read; a file with objects that could run code is refused.

    Raises:
        UsageError: the file is missing, damaged, unsafe, or the checkpoint of another model.
    """
    state = _load(path)
    arch = model_arch(state)
    if arch not in (*arch_names(), *gpt_arch_names()):
        what = f"the model {arch}" if arch else "no fairseq model"
        raise UsageError(f"{path} holds {what}; posnet's commands work with the models of posnet only.")
    missing = [name for name in ("model", "optimizer_history") if not state.get(name)]
    if "model" not in missing and not _are_weights(state["model"]):
        missing.append("weights")
    if missing or not isinstance(state["cfg"].get("task"), dict):
        raise UsageError(f"{path} lacks {', '.join(missing) or 'its task'}: no complete checkpoint of fairseq-train.")
    return state


def _are_weights(model):
    return isinstance(model, dict) and all(isinstance(tensor, torch.Tensor) for tensor in model.values())


def _load(path):
    """What torch.load makes of a file, data only.

    Raises:
        UsageError: it is missing, damaged or unsafe.
    """
    path = Path(path)
    if not path.is_file():
        what = "is no file" if path.exists() else "there is no such checkpoint"
        raise UsageError(f"{path}: {what}. Check the path.")
    try:
        # Files of old torch versions are no zip archives and cannot be mapped into memory; nor can those whose names
        # are not UTF-8.
        mmap = zipfile.is_zipfile(path) and str(path).isprintable()
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:
        sentence = explain_unreadable(error, path)
        if sentence is None and isinstance(error, OSError):
            sentence = f"{path}: {error.strerror}. Check the path."
        if sentence is None:
            raise
        raise UsageError(sentence) from error


def model_arch(state):
    """The ``--arch`` of a checkpoint's content, or None if it has none."""
    config = state.get("cfg") if isinstance(state, dict) else None
    model = config.get("model") if isinstance(config, dict) else None
    return model.get("_name") if isinstance(model, dict) else None


def model_options(state):
    """The options of a checkpoint's model, those that its configuration knows and plain values only.

    Raises:
        UsageError: an option is no plain value.
    """
    saved, options = state["cfg"]["model"], {}
    config = MixerLanguageModelConfig if is_language_model(state) else MixerTransformerConfig
    for option in dataclasses.fields(config):
        value = saved.get(option.name)
        if not isinstance(value, (str, int, float, type(None))):
            raise UsageError(f"the checkpoint's option {option.name} is a {type(value).__name__}, not a plain value.")
        options[option.name] = value
    return options


def build_model(state, vocabulary=None, max_length=None):
    """The model of a checkpoint's content, in evaluation mode.

    Args:
        state: what :func:`read_checkpoint` returned.
        vocabulary: its dictionaries. Default: invented ones of the right sizes.
        max_length: cut its positions to so many. Default: as it was trained.

    Raises:
        UsageError: it is a language model, or options, weights and dictionaries do not fit.
    """
    _refuse_language_model(state)
    weights, options = state["model"], model_options(state)
    options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    if max_length is not None:
        options |= dict.fromkeys(POSITION_LIMITS, max_length)
    if vocabulary is None:
        sizes = [len(weights.get(f"{side}.embed_tokens.weight", ())) for side in ("encoder", "decoder")]
        vocabulary = SimpleNamespace(
            source_dictionary=synthetic.dictionary(sizes[0]), target_dictionary=synthetic.dictionary(sizes[1])
        )
    model = MixerTransformer.build_model(Namespace(**options), vocabulary)
    if max_length is not None:
        limits = {name: tensor.shape for name, tensor in model.state_dict().items()}
        weights = {name: tensor[tuple(map(slice, limits.get(name, tensor.shape)))] for name, tensor in weights.items()}
    model.load_state_dict(weights)
    return model.eval()


def is_language_model(state):
    """Whether a checkpoint's content is that of a language model."""
    return model_arch(state) in gpt_arch_names()


def build_language_model(state, vocabulary=None):
    """The language model of a checkpoint's content, in evaluation mode.

    Args:
        state: what :func:`read_checkpoint` returned.
        vocabulary: its dictionary, in both places. Default: an invented one of the right size.

    Raises:
        UsageError: options, weights and dictionary do not fit.
    """
    weights, options = state["model"], model_options(state) | {"decoder_embed_path": None}
    if vocabulary is None:
        vocabulary = synthetic.task(len(weights.get("decoder.embed_tokens.weight", ())))
    model = MixerLanguageModel.build_model(Namespace(**options), vocabulary)
    model.load_state_dict(weights)
    return model.eval()


def _refuse_language_model(state):
    if is_language_model(state):
        raise UsageError(
            f"a checkpoint of {model_arch(state)} was given, a language model; this command works with translation "
            "models. Language models are for fairseq-eval-lm and fairseq-interactive."
        )


def for_inference(state, model, **extra):
    """A checkpoint's content with other weights, without what only training needs.

    Args:
        state: what :func:`read_checkpoint` returned.
        model: dict of weights.
        extra: facts to keep with them.
    """
    kept = {name: state[name] for name in ("cfg", "args", "task_state", "optimizer_history") if name in state}
    return kept | {"model": model, "extra_state": extra, "last_optimizer_state": None}


def refuse_not_finite(weights, path):
    """Refuse weights that are infinite or no numbers.

    Args:
        weights: {name: tensor}.
        path: where they come from, for the error's text.

    Raises:
        UsageError: a weight is not finite.
    """
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UsageError(
                f"{path}: the weight {name} is infinite or no number, so the training diverged. Take an earlier "
                "checkpoint, or train again with a lower --lr or a longer --warmup-updates."
            )


def check_output(path, option, inputs=()):
    """Refuse a place where no checkpoint can be written, or where there is one that cannot be made again.

    Args:
        path, option, inputs: see :func:`posnet_fairseq.files.check_place`.

    Raises:
        UsageError: see there; or the file is a checkpoint, but not one that :func:`for_inference` made of others.
    """
    check_place(path, option, inputs)
    if Path(path).is_file() and _is_original(path):
        raise UsageError(
            f"{option} {path} is a checkpoint of a training, or of another program, which would be lost. Give another "
            "name."
        )


def _is_original(path):
    """Whether a file is a checkpoint that was not made of others."""
    try:
        state = _load(path)
    except UsageError:
        return zipfile.is_zipfile(path)  # of a program that stores objects
    extra = state.get("extra_state") if isinstance(state, dict) else None
    return not (isinstance(extra, dict) and extra.keys() & set(MADE))


def write_checkpoint(state, path):
    """Write a checkpoint, all of it or nothing.

    Raises:
        UsageError: see :func:`posnet_fairseq.files.replacing`.
    """
    # torch does not tell why it could not write to a path; a file of Python's does.
    with replacing(path) as temporary, open(temporary, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


@dataclass(frozen=True)
class Vocabulary:
    """The languages and dictionaries of a model; what models ask of a fairseq task.

    A language model has one dictionary in both places, and languages without a name.
    """

    source_lang: str
    target_lang: str
    source_dictionary: Dictionary
    target_dictionary: Dictionary

    def encode(self, tokens):
        """Tokens of the source language between spaces to their ids with the end symbol, (M,)."""
        return self.source_dictionary.encode_line(tokens, add_if_not_exist=False).long()


def load_models(paths, data=None):
    """The models of checkpoints, in evaluation mode.

    Args:
        paths: checkpoints; several make an ensemble.
        data: directory with the dictionaries. Default: the one the first was trained on.

    Returns:
        list of models, their :class:`Vocabulary`, and the data directory.

    Raises:
        UsageError: see :func:`read_checkpoint`; or there are no dictionaries, or they do not fit.
    """
    states = [read_checkpoint(path) for path in paths]
    for state in states:
        _refuse_language_model(state)
    folder, given = _data_of(states[0], data)
    vocabulary = _read_vocabulary(states[0]["cfg"]["task"], folder, given)
    return [build_model(state, vocabulary) for state in states], vocabulary, folder


def load_language_model(path, data=None):
    """The language model of a checkpoint, in evaluation mode.

    Args:
        path: of the checkpoint.
        data: directory with the dictionary. Default: the one it was trained on.

    Returns:
        model, its :class:`Vocabulary`, and the data directory.

    Raises:
        UsageError: see :func:`read_checkpoint`; or there is no dictionary, or it does not fit.
    """
    state = read_checkpoint(path)
    folder, given = _data_of(state, data)
    dictionary = _read_dictionary(folder, "dict.txt", given)
    vocabulary = Vocabulary("", "", dictionary, dictionary)
    return build_language_model(state, vocabulary), vocabulary, folder


def _data_of(state, data):
    """The directory of a model's dictionaries, and who says so."""
    if data:
        return Path(data), "--data"
    return Path(str(state["cfg"]["task"].get("data")).split(":")[0]), "the directory of its training"


def languages_of(task, folder):
    """Source and target language of a checkpoint's task, None where nothing tells them.

    Args:
        task: the task's options in the checkpoint.
        folder: path of the data. If the languages were not given in training, fairseq took them from its names.
    """
    languages = [task.get(f"{side}_lang") for side in ("source", "target")]
    if not all(languages):
        languages = infer_language_pair(str(folder)) if folder.is_dir() else (None, None)
    return languages


def _read_vocabulary(task, folder, given):
    languages = languages_of(task, folder)
    if not all(isinstance(language, str) for language in languages):
        raise UsageError(
            f"{folder} ({given}) has no binarised data that tells the languages of the model. Give the directory "
            "that it was trained on by --data."
        )
    return Vocabulary(*languages, *(_read_dictionary(folder, f"dict.{language}.txt", given) for language in languages))


def _read_dictionary(folder, name, given):
    path = folder / name
    if not path.is_file():
        raise UsageError(f"{folder} ({given}) has no {name}. Give the directory with the dictionaries by --data.")
    return Dictionary.load(str(path))
