"""Reading checkpoints as data, and writing them whole.

fairseq's own loader evaluates some options that it finds in a checkpoint as Python code. Here a model is built from
the checkpoint's tensors and the plain values of its own options, and from nothing else.
"""

import contextlib
import dataclasses
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

from posnet_fairseq.inference.recorded_search import ENTRY as SEARCH
from posnet_fairseq.inference.recorded_search import recorded_search
from posnet_fairseq.mixers.bases.mixer_options import choices, plain_type
from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS
from posnet_fairseq.registry import mixer_names, option_fields
from posnet_fairseq.shared.errors import DamagedError, UsageError
from posnet_fairseq.shared.failures import explain_unreadable
from posnet_fairseq.shared.files import check_place, replacing
from posnet_fairseq.transformer.architectures import arch_names, gpt_arch_names
from posnet_fairseq.transformer.model_options import LanguageModelOptions, TransformerOptions

# Content of a checkpoint, and its tensors by name.
State = dict[str, Any]
Weights = dict[str, torch.Tensor]

# Facts in the extra_state of checkpoints that posnet's commands made of others.
MADE = ("averaged", "precomputed", "copied")
POSITION_LIMITS = ("max_source_positions", "max_target_positions")
# Options that may be None in a trained model, besides those of mixers that it does not have.
_OPEN = (
    *("gate", "cross_gate", "position_embedding", "length_ratio", "encoder_embed_path", "decoder_embed_path"),
    "weight_noise_on",
)
_LARGEST, _LONGEST = 10**9, 4096  # numbers, and texts (such as paths), among options


def read_checkpoint(path: str | Path) -> State:
    """The content of a posnet checkpoint, its tensors read from disk only when they are used.

    Only data is read; a file with objects that could run code is refused.

    Raises:
        UsageError: the file is missing, damaged, unsafe, or the checkpoint of another model.
    """
    state = load_content(path)
    arch = model_arch(state)
    if isinstance(state, dict) and arch:
        common = state["cfg"].get("common")
        plugin = common.get("user_dir") if isinstance(common, dict) else None
        check_plugin(path, arch, state["cfg"]["model"], plugin)
    if not isinstance(state, dict) or arch not in (*arch_names(), *gpt_arch_names()):
        other = arch or _legacy_name(state, "model", "arch")
        what = f"the model {other:.100}" if other else "no fairseq model"
        raise UsageError(f"{path} holds {what}; posnet's commands work with the models of posnet only.")
    task = _legacy_name(state, "task", "task")
    if task:
        raise UsageError(
            f"{path} was trained with --task {task:.100}; posnet's commands work with models of the tasks translation "
            "and language_modeling only. Use fairseq's commands with --user-dir."
        )
    missing = [name for name in ("model", "optimizer_history") if not state.get(name)]
    if missing or not isinstance(state["cfg"].get("task"), dict):
        raise UsageError(f"{path} lacks {', '.join(missing) or 'its task'}: no complete checkpoint of fairseq-train.")
    fault = _fault(state)
    if fault:
        raise UsageError(f"{path}: {fault}; no checkpoint of fairseq-train has that. Take another one.")
    with about(path):
        model_options(state)
        recorded_search(state)
    return state


def check_plugin(path: str | Path, arch: str, options: State, plugin: object) -> None:
    """Refuse a model whose mixers are those of a plugin that has not been imported.

    Args:
        path: of the model.
        arch: its architecture.
        options: of the model, by name.
        plugin: the folder or package that registers its mixers, if it has one.

    Raises:
        UsageError: the plugin is needed.
    """
    known, mixers = (*arch_names(), *gpt_arch_names()), mixer_names()
    missing = [
        name for name in map(options.get, PLACE_OPTIONS.values()) if isinstance(name, str) and name not in mixers
    ]
    name = Path(plugin).name if isinstance(plugin, str) else ""
    if (missing or arch not in known) and name not in ("", "posnet_fairseq"):
        raise UsageError(
            f"{path} is the model {arch:.100} of the plugin {name:.100}. Give its folder, --user-dir {plugin:.200}; in "
            f"Python, import {name:.100} first."
        )


def load_content(path: str | Path) -> object:
    """The content of any file that torch.load reads as data only.

    Raises:
        DamagedError: its bytes are no checkpoint's, or unsafe.
        UsageError: it is missing, or cannot be read.
    """
    path = Path(path)
    if Path(path, "config.json").is_file():
        raise UsageError(f"{path} is a model folder, not a checkpoint. Give the checkpoint that it was made of.")
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
            warnings.simplefilter("ignore")  # about kinds of tensors that are refused anyway
            # Files of old torch versions are no zip archives and cannot be mapped into memory; nor can those whose
            # names are not UTF-8.
            mmap = archive and str(path).isprintable()
            # For good: leaving the context manager of torch would also forget what fairseq's process has registered.
            torch.serialization.add_safe_globals(data_types())
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:
        sentence = explain_unreadable(error, path)
        if sentence is not None:
            raise DamagedError(sentence) from error
        if isinstance(error, OSError):
            raise UsageError(f"{path}: {error.strerror}. Check the path.") from error
        raise


def data_types() -> list[Any]:
    """The types that fairseq writes into checkpoints besides tensors and plain values: they hold data and run no code.

    Checkpoints of fairseq's own models and of adafactor hold a Namespace; checkpoints of
    ``--eval-bleu`` hold types of numpy.
    """
    types: list[Any] = [Namespace, numpy.ndarray, numpy.dtype]
    types += [type(numpy.dtype(kind)) for kind in ("int64", "float64")]
    scalar, array = numpy.float64(0).__reduce__()[0], numpy.array(0).__reduce__()[0]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        # numpy 2 renamed the module; a checkpoint keeps the name of the numpy that wrote it.
        types += [(array, f"{module}._reconstruct"), (scalar, f"{module}.scalar")]
    return types


def _fault(state: State) -> str | None:
    """What no checkpoint of fairseq-train has as weights and history, or None."""
    history, weights = state["optimizer_history"], state["model"]
    last = history[-1] if isinstance(history, list) else None
    if not isinstance(last, dict) or type(last.get("num_updates")) is not int:
        return "its optimizer_history does not tell how many updates were done"
    if not isinstance(weights, dict):
        return f"its model is a {type(weights).__name__}"
    for name in ("data", "source_lang", "target_lang"):
        value = state["cfg"]["task"].get(name)
        if value is not None and (not isinstance(value, str) or len(value) > _LONGEST or "\0" in value):
            return f"its task's {name} is no text of at most {_LONGEST} characters, none of them NUL"
    faults = (f"the weight {name!s:.100} {fault}" for name, weight in weights.items() if (fault := _fault_of(weight)))
    return next(faults, None)


def _fault_of(weight: object) -> str | None:
    if not isinstance(weight, torch.Tensor):
        return f"is a {type(weight).__name__}"
    plain = weight.layout is torch.strided and not weight.is_nested and not weight.is_quantized
    if not plain or weight.is_complex():
        return "is a sparse, nested, quantized or complex tensor"
    if weight.is_meta or weight.numel() * weight.element_size() > weight.untyped_storage().nbytes():
        return "has a size, but not the numbers that belong to it"
    return None


@contextlib.contextmanager
def about(path: str | Path) -> Iterator[None]:
    """Put the name of a checkpoint in front of every :class:`UsageError` of a block."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def model_arch(state: object) -> str | None:
    """The ``--arch`` of a checkpoint's content, or None if it has none."""
    config = state.get("cfg") if isinstance(state, dict) else None
    model = config.get("model") if isinstance(config, dict) else None
    arch = model.get("_name") if isinstance(model, dict) else None
    return arch if isinstance(arch, str) else None


def _legacy_name(state: object, part: str, option: str) -> str | None:
    """The name of a model or task in a checkpoint's content that fairseq has no dataclass for, or None.

    Args:
        state: the content.
        part: of its configuration: "model" or "task".
        option: of the command line that names it.
    """
    config = state.get("cfg") if isinstance(state, dict) else None
    found = config.get(part) if isinstance(config, dict) else state.get("args") if isinstance(state, dict) else None
    name = vars(found).get(option) if isinstance(found, Namespace) else None
    return name if isinstance(name, str) else None


def is_language_model(state: State) -> bool:
    """Whether a checkpoint's content is that of a language model."""
    return model_arch(state) in gpt_arch_names()


def refuse_language_model(state: State) -> None:
    """Refuse the content of a language model's checkpoint.

    Raises:
        UsageError: it is one.
    """
    if is_language_model(state):
        raise UsageError(
            f"a checkpoint of {model_arch(state)} was given, a language model; this command works with translation "
            "models. Language models are for posnet-generate, fairseq-eval-lm and fairseq-interactive."
        )


def model_options(state: State) -> dict[str, Any]:
    """The options of a checkpoint's model that its configuration knows: plain values by name.

    What an older posnet did not know has its default.

    Raises:
        UsageError: an option is missing or of another type than its field.
    """
    saved, options = state["cfg"]["model"], {}
    for option in known_options(state):
        value = saved.get(option.name, option.default)
        if option.metadata.get("of_task") and value in (None, f"${{task.{option.name}}}"):
            value = state["cfg"]["task"].get(option.name, option.default)
        options[option.name] = value
        fault = _fault_of_option(option, value)
        if fault:
            raise UsageError(f"the checkpoint's option {option.name} is {fault}. Take another checkpoint.")
    return options


def known_options(state: State) -> tuple[dataclasses.Field, ...]:
    """The options that a model of this architecture has."""
    config: Any = LanguageModelOptions if is_language_model(state) else TransformerOptions
    return dataclasses.fields(config)


def _fault_of_option(option: dataclasses.Field, value: object) -> str | None:
    """What the value of an option is and should not be, or None."""
    wanted = plain_type(option)
    if value is None:
        return None if wanted is bool or option.name in (*_OPEN, *option_fields()) else "missing"
    if value == option.default:
        return None
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}, not a plain value"
    allowed_values = choices(option)
    if wanted is not bool and allowed_values:
        right, allowed = value in allowed_values, f"one of {', '.join(allowed_values)}"
    elif wanted is str:
        # A mixer's option that may be one for each layer is text; others have written its number down as it is.
        right = (type(value) is int and option.name in option_fields()) or isinstance(value, str)
        right, allowed = right and len(str(value)) <= _LONGEST, f"a text of at most {_LONGEST} characters"
    else:
        right = type(value) is wanted or (wanted is float and type(value) is int)
        right = right and not isinstance(value, str) and -_LARGEST <= value <= _LARGEST  # NaN is in no range
        allowed = {bool: "a switch", int: "a whole number", float: "a number"}[wanted]
    if right:
        return None
    large = type(value) is int and not -_LARGEST <= value <= _LARGEST
    return f"{'too large a number' if large else format(repr(value), '.40')}, not {allowed}"


def vocabulary_sizes(weights: Weights) -> tuple[int, int]:
    """Entries of the dictionaries of source and target that weights were trained with, 0 of one that is not there."""
    embeddings = (weights.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    source, target = (0 if weight is None or not weight.dim() else len(weight) for weight in embeddings)
    return source, target


def for_inference(state: State, model: Weights, **extra: object) -> State:
    """The content of a checkpoint with other weights, without what only training needs.

    Args:
        state: content of the original checkpoint.
        model: weights by name.
        extra: facts to keep in its ``extra_state``, beside the search settings that it records.
    """
    kept = {name: state[name] for name in ("cfg", "args", "task_state", "optimizer_history") if name in state}
    if recorded := recorded_search(state):
        extra = {SEARCH: recorded} | extra
    return kept | {"model": model, "extra_state": extra, "last_optimizer_state": None}


def check_output(path: str | Path, option: str, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a path where no checkpoint can be written, or of a checkpoint that cannot be made again.

    Args:
        path, option, inputs: see :func:`posnet_fairseq.shared.files.check_place`.

    Raises:
        UsageError: nothing can be written there, or the file is a checkpoint that was not made by
            :func:`for_inference`.
    """
    check_place(path, option, inputs)
    if Path(path).is_file() and _is_original(path):
        raise UsageError(
            f"{option} {path} is a checkpoint of a training, or of another program, which would be lost. Give another "
            "name."
        )


def _is_original(path: str | Path) -> bool:
    """Whether a file is a checkpoint that was not made of others."""
    try:
        state = load_content(path)
    except UsageError:
        return zipfile.is_zipfile(path)  # of a program that stores objects
    extra = state.get("extra_state") if isinstance(state, dict) else None
    return not (isinstance(extra, dict) and extra.keys() & set(MADE))


def write_checkpoint(state: State, path: str | Path) -> None:
    """Write a checkpoint, whole or not at all.

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
