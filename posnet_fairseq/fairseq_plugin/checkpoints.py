"""Reading checkpoints as data and writing them whole.

fairseq's own loader evaluates some options that it finds in a checkpoint, as Python. Here a model is built from
nothing but its tensors and plain values of its own options.
"""

import contextlib
import dataclasses
import re
import warnings
import zipfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair

from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.fairseq_plugin.flags import MixerLanguageModelConfig, MixerTransformerConfig
from posnet_fairseq.mixers.bases.options import choices
from posnet_fairseq.mixers.bases.options import plain_type as kind
from posnet_fairseq.models.mixer_language_model import MixerLanguageModel
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.registry import option_fields
from posnet_fairseq.shared.errors import DamagedError, UsageError
from posnet_fairseq.shared.failures import explain_damaged_dictionary, explain_unreadable
from posnet_fairseq.shared.files import check_place, replacing
from posnet_fairseq.transformer.architectures import arch_names, gpt_arch_names

# Facts in the extra_state of checkpoints that posnet's commands made of others.
MADE = ("averaged", "precomputed", "copied")
POSITION_LIMITS = ("max_source_positions", "max_target_positions")
# Options that stay open in a trained model; those of mixers that it does not have do, too.
_OPEN = ("gate", "cross_gate", "position_embedding", "length_ratio", "encoder_embed_path", "decoder_embed_path")
_LARGEST, _LONGEST = 10**9, 4096  # numbers and texts (paths) among options


def read_checkpoint(path):
    """The content of a posnet checkpoint, its tensors read from disk only when they are used.

    Only data is read; a file with objects that could run code is refused.

    Raises:
        UsageError: the file is missing, damaged, unsafe, or the checkpoint of another model.
    """
    state = load_content(path)
    arch = model_arch(state)
    if arch not in (*arch_names(), *gpt_arch_names()):
        what = f"the model {arch:.100}" if arch else "no fairseq model"
        raise UsageError(f"{path} holds {what}; posnet's commands work with the models of posnet only.")
    missing = [name for name in ("model", "optimizer_history") if not state.get(name)]
    if missing or not isinstance(state["cfg"].get("task"), dict):
        raise UsageError(f"{path} lacks {', '.join(missing) or 'its task'}: no complete checkpoint of fairseq-train.")
    fault = _fault(state)
    if fault:
        raise UsageError(f"{path}: {fault}; no checkpoint of fairseq-train has that. Take another one.")
    with about(path):
        model_options(state)
    return state


def load_content(path: str | Path) -> object:
    """What torch.load makes of a file, data only, whatever it is about.

    Raises:
        DamagedError: its bytes are no checkpoint's, or unsafe ones.
        UsageError: it is missing, or cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"{path} is a directory. Give a checkpoint in it, such as {path / 'checkpoint_best.pt'}.")
    if not path.is_file():
        what = "it is no regular file" if path.exists() else "there is no such checkpoint"
        raise UsageError(f"{path}: {what}. Check the path.")
    try:
        archive = zipfile.is_zipfile(path)
        if archive and any(part.compress_type != zipfile.ZIP_STORED for part in zipfile.ZipFile(path).infolist()):
            raise EOFError("torch compresses nothing, and what others have compressed may fill the memory")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kinds of tensors that are refused anyway
            # Files of old torch versions are no zip archives and cannot be mapped into memory; nor can those whose
            # names are not UTF-8.
            mmap = archive and str(path).isprintable()
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:
        sentence = explain_unreadable(error, path)
        if sentence is not None:
            raise DamagedError(sentence) from error
        if isinstance(error, OSError):
            raise UsageError(f"{path}: {error.strerror}. Check the path.") from error
        raise


def _fault(state):
    """What no checkpoint of fairseq-train has in the place of weights and history, or None."""
    history, weights = state["optimizer_history"], state["model"]
    last = history[-1] if isinstance(history, list) else None
    if not isinstance(last, dict) or type(last.get("num_updates")) is not int:
        return "its optimizer_history does not tell how many updates were done"
    if not isinstance(weights, dict):
        return f"its model is a {type(weights).__name__}"
    for name in ("data", "source_lang", "target_lang"):
        value = state["cfg"]["task"].get(name)
        if value is not None and (not isinstance(value, str) or len(value) > _LONGEST):
            return f"its task's {name} is no text of at most {_LONGEST} characters"
    faults = (f"the weight {name!s:.100} {fault}" for name, weight in weights.items() if (fault := _fault_of(weight)))
    return next(faults, None)


def _fault_of(weight):
    if not isinstance(weight, torch.Tensor):
        return f"is a {type(weight).__name__}"
    plain = weight.layout is torch.strided and not weight.is_nested and not weight.is_quantized
    if not plain or weight.is_complex():
        return "is a sparse, nested, quantised or complex tensor"
    if weight.is_meta or weight.numel() * weight.element_size() > weight.untyped_storage().nbytes():
        return "has a size, but not the numbers that belong to it"
    return None


@contextlib.contextmanager
def about(path):
    """A block that works with the checkpoint at `path`, whose name its :class:`UsageError` is to begin with."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def model_arch(state):
    """The ``--arch`` of a checkpoint's content, or None if it has none."""
    config = state.get("cfg") if isinstance(state, dict) else None
    model = config.get("model") if isinstance(config, dict) else None
    arch = model.get("_name") if isinstance(model, dict) else None
    return arch if isinstance(arch, str) else None


def model_options(state):
    """The options of a checkpoint's model, those that its configuration knows and plain values only.

    Raises:
        UsageError: an option is missing or of another type than its field.
    """
    saved, options = state["cfg"]["model"], {}
    config = MixerLanguageModelConfig if is_language_model(state) else MixerTransformerConfig
    for option in dataclasses.fields(config):
        value = options[option.name] = saved.get(option.name)
        fault = _fault_of_option(option, value)
        if fault:
            raise UsageError(f"the checkpoint's option {option.name} is {fault}. Take another checkpoint.")
    return options


def _fault_of_option(option, value):
    """What the value of an option (a dataclasses.Field) is and should not be, or None."""
    wanted = kind(option)
    if value is None:
        return None if wanted is bool or option.name in (*_OPEN, *option_fields()) else "missing"
    if value == option.default:  # an interpolation, where only training reads it
        return None
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}, not a plain value"
    if wanted is not bool and choices(option):
        right, allowed = value in choices(option), f"one of {', '.join(choices(option))}"
    elif wanted is str:
        # A mixer's option that may be one for each layer is text; others have written its number down as it is.
        right = (type(value) is int and option.name in option_fields()) or isinstance(value, str)
        right, allowed = right and len(str(value)) <= _LONGEST, f"a text of at most {_LONGEST} characters"
    else:
        right = type(value) is wanted or (wanted is float and type(value) is int)
        right = right and -_LARGEST <= value <= _LARGEST  # no number is in no range
        allowed = {bool: "a switch", int: "a whole number", float: "a number"}[wanted]
    if right:
        return None
    large = type(value) is int and not -_LARGEST <= value <= _LARGEST
    return f"{'too large a number' if large else format(repr(value), '.40')}, not {allowed}"


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
    _refuse_other_depth(weights, options)
    options |= {"encoder_embed_path": None, "decoder_embed_path": None}
    if max_length is not None:
        options |= dict.fromkeys(POSITION_LIMITS, max_length)
    if vocabulary is None:
        sizes = _words(weights)
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
    _refuse_other_depth(weights, options)
    if vocabulary is None:
        vocabulary = synthetic.task(_words(weights)[1])
    model = MixerLanguageModel.build_model(Namespace(**options), vocabulary)
    model.load_state_dict(weights)
    return model.eval()


def _words(weights):
    """Entries of the dictionaries of source and target, which a language model has one of."""
    embeddings = (weights.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    return [0 if embedding is None or not embedding.dim() else len(embedding) for embedding in embeddings]


def _refuse_other_depth(weights, options):
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


def check_output(path, option, inputs=()):
    """Refuse a place where no checkpoint can be written, or where there is one that cannot be made again.

    Args:
        path, option, inputs: see :func:`posnet_fairseq.shared.files.check_place`.

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
        state = load_content(path)
    except UsageError:
        return zipfile.is_zipfile(path)  # of a program that stores objects
    extra = state.get("extra_state") if isinstance(state, dict) else None
    return not (isinstance(extra, dict) and extra.keys() & set(MADE))


def write_checkpoint(state, path):
    """Write a checkpoint, all of it or nothing.

    Raises:
        UsageError: see :func:`posnet_fairseq.shared.files.replacing`.
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
    states = {path: read_checkpoint(path) for path in map(str, paths)}
    for path, state in states.items():
        with about(path):
            _refuse_language_model(state)
    first = states[str(paths[0])]
    folder, given = _data_of(first, data)
    vocabulary = _read_vocabulary(first, folder, given)
    _refuse_other_tasks(states, vocabulary)
    models = []
    for path in map(str, paths):
        with about(path):
            models.append(build_model(states[path], vocabulary))
    for path, state in states.items():
        _refuse_other_dictionaries(path, state, vocabulary, folder)
    return models, vocabulary, folder


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
    with about(path):
        return build_language_model(state, vocabulary), vocabulary, folder


def _data_of(state, data):
    """The directory of a model's dictionaries, and who says so."""
    if data:
        return Path(data), "--data"
    return data_folder(state), "the directory of its training"


def data_folder(state: dict) -> Path:
    """The directory of data that a checkpoint's content was trained on; of several, the first."""
    return Path(str(state["cfg"]["task"].get("data")).split(":")[0])


def languages_of(state, folder=None):
    """Source and target of a model: as given in training; else fairseq took them from the names of the data.

    Args:
        state: what :func:`read_checkpoint` returned.
        folder: of data, if what it was trained on is not there any more.

    Returns:
        two names, or None where nothing tells them.
    """
    languages = [state["cfg"]["task"].get(f"{side}_lang") for side in ("source", "target")]
    for place in filter(None, (data_folder(state), folder)):
        if not all(languages):
            with contextlib.suppress(OSError):  # what is gone, or cannot be looked at, tells nothing
                languages = infer_language_pair(str(place))
    return tuple(languages) if all(isinstance(language, str) for language in languages) else None


def _read_vocabulary(state, folder, given):
    languages = languages_of(state, folder)
    if languages is None:
        raise UsageError(
            f"{folder} ({given}) has no binarised data that tells the languages of the model. Give the directory "
            "that it was trained on by --data."
        )
    return Vocabulary(*languages, *(_read_dictionary(folder, f"dict.{language}.txt", given) for language in languages))


def _refuse_other_tasks(states, vocabulary):
    """Refuse an ensemble of models of other languages, or of dictionaries of other sizes, than the first.

    Args:
        states: dict from paths to contents of checkpoints.
        vocabulary: of the first.
    """
    first, *others = states
    ours = vocabulary.source_lang, vocabulary.target_lang
    for other in others:
        theirs = languages_of(states[other]) or ours
        sizes = [" and ".join(map(str, _words(states[path]["model"]))) for path in (first, other)]
        if theirs != ours:
            difference = f"the first translates {'-'.join(ours)}, the second {'-'.join(theirs)}"
        elif sizes[0] != sizes[1]:
            difference = f"the dictionaries of the first have {sizes[0]} entries, those of the second {sizes[1]}"
        else:
            continue
        raise UsageError(f"{first} and {other} make no ensemble: {difference}. Give models of the same data.")


def _refuse_other_dictionaries(path, state, vocabulary, folder):
    """Refuse dictionaries other than those that the model was trained with, if these are still there."""
    trained_on = data_folder(state)
    for language, dictionary in (
        (vocabulary.source_lang, vocabulary.source_dictionary),
        (vocabulary.target_lang, vocabulary.target_dictionary),
    ):
        own = trained_on / f"dict.{language}.txt"
        used = folder / own.name
        try:
            differs = own.is_file() and not own.samefile(used) and _load_dictionary(own) != dictionary
        except (OSError, UsageError):  # it cannot be read any more, and tells nothing
            differs = False
        if differs:
            raise UsageError(
                f"{path} was trained with the dictionary {own}, which differs from {used}. Give a model that was "
                "trained with the latter, or the directory with its own dictionaries by --data."
            )


def _read_dictionary(folder, name, given):
    path = folder / name
    if path.is_dir():
        raise UsageError(f"{path} is a directory. Give the directory with the dictionaries by --data.")
    if not path.is_file():
        raise UsageError(f"{folder} ({given}) has no {name}. Give the directory with the dictionaries by --data.")
    return _load_dictionary(path)


def _load_dictionary(path):
    try:
        dictionary = Dictionary.load(str(path))
    except Exception as error:  # fairseq raises just that if the text is not UTF-8
        raise UsageError(explain_damaged_dictionary(error, path)) from error
    if len(dictionary) == dictionary.nspecial:
        raise UsageError(explain_damaged_dictionary("it is empty", path))
    return dictionary
