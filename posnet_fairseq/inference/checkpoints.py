"""Reading checkpoints as data, and writing them whole.

fairseq's own loader evaluates some options that it finds in a checkpoint as Python code. Here a model is built from
the checkpoint's tensors and the plain values of its own options, and from nothing else.
"""

import dataclasses
import itertools
import re
import warnings
import zipfile
import zlib
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import torch

from posnet_fairseq.inference.search.search_settings import ENTRY, recorded_search
from posnet_fairseq.mixers.bases.mixer_options import choices, plain_type
from posnet_fairseq.mixers.bases.mixer_settings import named_mixers
from posnet_fairseq.registry import mixer_names, option_fields
from posnet_fairseq.shared import errors
from posnet_fairseq.shared.errors import DamagedError, UsageError, about, unreadable
from posnet_fairseq.shared.failures import REPLACE, explain_unreadable
from posnet_fairseq.shared.files import check_place, has_utf8_name, replacing
from posnet_fairseq.transformer.architectures import archs, gpt_archs
from posnet_fairseq.transformer.model_options import language_model_fields, translation_model_fields

# Content of a checkpoint, and its tensors by name.
State = dict[str, Any]
Weights = dict[str, torch.Tensor]

# Facts in the extra_state of checkpoints that posnet's commands made of others.
MADE = ("averaged", "precomputed", "copied")
POSITION_LIMITS = ("max_source_positions", "max_target_positions")
# Options that may be None in a trained model, besides those of mixers that it does not have.
_OPEN = (
    *("gate", "encoder_gate", "decoder_gate", "cross_gate"),
    *("position_embedding", "encoder_position_embedding", "decoder_position_embedding"),
    *("length_ratio", "encoder_embed_path", "decoder_embed_path", "weight_noise_on", "freeze"),
)
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
# Types of weights that torch computes with, and those of a model's other tensors.
_PRECISIONS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
_LARGEST, _LONGEST = 10**9, 2**16  # numbers, and texts (such as paths and mixers of layers), among options


def read_checkpoint(path: str | Path, with_weights: bool = True) -> State:
    """Return the content of a posnet checkpoint, whose tensors are read from disk when they are used.

    Only data is read; a file with objects that could run code is refused.

    Args:
        path: the file.
        with_weights: read the weights and refuse those that are not what was written. Without it, use none of them.
    """
    state: Any = load_content(path)
    arch = model_arch(state)
    if arch:
        common = state["cfg"].get("common")
        plugin = common.get("user_dir") if isinstance(common, dict) else None
        check_plugin(path, arch, state["cfg"]["model"], plugin)
    if arch not in (*archs(), *gpt_archs()):
        match state:
            case {"cfg": {"model": Namespace(arch=str(name))}}:  # fairseq's own
                arch = name
        what = f"the model {arch:.100}" if arch else "no model of posnet"
        raise UsageError(
            f"{path} holds {what}; posnet's commands work with the models of posnet only. Use fairseq-generate for "
            "others of fairseq."
        )
    if fault := _fault(state):
        raise UsageError(f"{path}: {fault}. Take another checkpoint of fairseq-train.")
    with about(path):
        model_options(state)
        recorded_search(state)
    weights = state["model"]
    for first, second in itertools.combinations(EMBEDDINGS, 2):
        one, other = weights.get(first), weights.get(second)
        # Of a model on a GPU, fairseq saves each tied weight as a copy. Make them one tensor again.
        if one is not None and other is not None and one.dtype == other.dtype and torch.equal(one, other):
            weights[second] = one
    if with_weights:
        refuse_damaged(path, weights)
    return state


def refuse_damaged(path: str | Path, weights: Weights) -> None:
    """Refuse tensors of a checkpoint that are not what was written into it, as its checksums tell.

    They are compared with those of all parts of the file, and the other parts are not read: in a checkpoint of a
    training these are twice as large as the weights.
    """
    if not zipfile.is_zipfile(path):  # the format of old versions of torch has no checksums
        return
    with zipfile.ZipFile(path) as archive:
        written = {(part.CRC, part.file_size) for part in archive.infolist()}
    if not any(checksum for checksum, _ in written):  # torch.serialization.set_crc32_options(False)
        return
    names = {tensor.untyped_storage().data_ptr(): name for name, tensor in weights.items()}
    damaged = []
    for name in names.values():
        data: Any = torch.empty(0, dtype=torch.uint8).set_(weights[name].untyped_storage()).numpy()
        if (zlib.crc32(data), data.nbytes) not in written:
            damaged.append(name)
    if damaged:
        others = f" and {len(damaged) - 1} others are" if damaged[1:] else " is"
        raise DamagedError(
            f"{path} is damaged: its weight {damaged[0]}{others} not what was written, as after a copy that failed. "
            f"{REPLACE}"
        )


def check_plugin(path: str | Path, arch: str, options: State, plugin: object) -> None:
    """Refuse a model whose mixers are of a plugin that was not imported; `plugin` is its folder or name, or None."""
    known = arch in (*archs(), *gpt_archs())
    name = Path(plugin).name if isinstance(plugin, str) else ""
    if name not in ("", "posnet_fairseq") and not (known and named_mixers(options) <= set(mixer_names())):
        raise UsageError(
            f"{path} is the model {arch:.100} of the plugin {name:.100}. Give its folder, --user-dir {plugin:.200}; in "
            f"Python, import {name:.100} first."
        )


def checkpoint_in(folder: Path) -> str:
    """Return the advice to give a checkpoint in a folder, such as its best one, without a period."""
    found = sorted(folder.glob("checkpoint*.pt"), key=lambda path: (path.name != "checkpoint_best.pt", path))
    return f"Give a checkpoint in it{f', such as {found[0]}' if found else ''}"


def load_content(path: str | Path, with_tensors: bool = False) -> object:
    """Return the content of any file that torch.load reads as data only; one that it refuses is a DamagedError.

    `with_tensors`: also one whose tensors are not what was written, for which all of them are read.
    """
    path = Path(path)
    if not path.is_file():
        problem = f": {'it is no regular file' if path.exists() else 'there is no such checkpoint'}. Check the path"
        if Path(path, "config.json").is_file():
            problem = " is a model folder, not a checkpoint. Give the checkpoint that it was made of"
        elif path.is_dir():
            problem = f" is a directory. {checkpoint_in(path)}"
        raise UsageError(f"{path}{problem}.")
    try:
        archive = zipfile.is_zipfile(path)
        if archive:
            _check_parts(path, with_tensors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about kinds of tensors that are refused anyway
            # Files of old torch versions are no zip archives and cannot be mapped into memory; nor can those whose
            # names are not UTF-8.
            mmap = archive and has_utf8_name(path)
            # For good: leaving the context manager of torch would also forget what fairseq's process has registered.
            torch.serialization.add_safe_globals(data_types())
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:
        sentence = explain_unreadable(error, path)
        if sentence is not None:
            with path.open("rb") as file:
                head = file.read(1000)
            if head and not re.search(rb"[\x00-\x08\x0e-\x1f]", head):  # no control characters
                way = errors.option("input")
                advice = f"Text to translate is given by {way}"
                if way == "--input":
                    advice = "Give a checkpoint; posnet-translate and posnet-generate read text by --input"
                sentence = f"{path} is a text, not a checkpoint. {advice}."
            raise DamagedError(sentence) from error
        if isinstance(error, OSError):
            raise unreadable(path, error) from error
        raise


def _check_parts(path: Path, with_tensors: bool) -> None:
    """Raise an error if a part of an archive is not as torch.save writes it, tensors only `with_tensors`."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise EOFError("torch compresses nothing, and what others have compressed may fill the memory")
        if any(part.CRC for part in parts):  # torch can be told to write none
            for part in parts:
                if with_tensors or "/data/" not in part.filename:
                    with archive.open(part) as content:
                        while content.read(2**20):  # compares its checksum at the end
                            pass


def data_types() -> list[Any]:
    """Return the types that fairseq writes into checkpoints besides tensors and plain values: they run no code.

    Checkpoints of fairseq's own models and of adafactor hold a Namespace, those of ``--eval-bleu`` types of numpy.
    """
    types: list[Any] = [Namespace, numpy.ndarray, numpy.dtype]
    types += [type(numpy.dtype(kind)) for kind in ("int64", "float64")]
    scalar, array = numpy.float64(0).__reduce__()[0], numpy.array(0).__reduce__()[0]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        # numpy 2 renamed the module; a checkpoint keeps the name of the numpy that wrote it.
        types += [(array, f"{module}._reconstruct"), (scalar, f"{module}.scalar")]
    return types


def _fault(state: State) -> str | None:
    """Return what no checkpoint of a translation or language model has, or None."""
    weights, history, task = state.get("model"), state.get("optimizer_history"), state["cfg"].get("task")
    if not isinstance(weights, dict) or not weights:
        return "it has no weights"
    if not isinstance(task, dict):
        return "its task is missing, or none of translation and language_modeling"
    last = history[-1] if isinstance(history, list) and history else None
    if not isinstance(last, dict) or type(last.get("num_updates")) is not int:
        return "its optimizer_history does not tell how many updates were done"
    return fault_of_weights(weights)


def fault_of_weights(weights: dict[Any, Any]) -> str | None:
    """Return what the first value in a dict from names to tensors is and no weight can be, or None."""
    for name, weight in weights.items():
        if not (
            isinstance(weight, torch.Tensor)
            and weight.layout is torch.strided
            and not (weight.is_nested or weight.is_quantized or weight.is_complex() or weight.is_meta)
            # Some have a size, and not a number for each place.
            and weight.numel() * weight.element_size() <= weight.untyped_storage().nbytes()
        ):
            return f"the weight {name!s:.100} is no dense tensor of real numbers"
        if weight.dtype not in (*_PRECISIONS, *_WHOLE):
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _PRECISIONS)
            return f"the weight {name!s:.100} has numbers of the type {weight.dtype}; those of {names} can be read"
    return None


def model_arch(state: object) -> str | None:
    """Return the ``--arch`` of a checkpoint's content, or None if it has none."""
    match state:
        case {"cfg": {"model": {"_name": str(arch)}}}:
            return arch
    return None


def is_language_model(state: State) -> bool:
    """Return whether a checkpoint's content is that of a language model."""
    return model_arch(state) in gpt_archs()


def refuse_other_kind(state: State, generates: bool = False) -> None:
    """Refuse the content of a language model's checkpoint, or with `generates` that of a translation model."""
    if is_language_model(state) != generates:
        what = (
            "a translation model. Give a language model."
            if generates
            else "a language model, where a translation model is needed. Language models are for posnet-generate, "
            "load_language_model, fairseq-eval-lm and fairseq-interactive."
        )
        raise UsageError(f"a checkpoint of {model_arch(state)} was given, {what}")


def model_options(state: State) -> Namespace:
    """Return the options of a checkpoint's model, plain values as attributes; those that it lacks are defaults."""
    saved, options = state["cfg"]["model"], Namespace()
    for option in known_options(state):
        value = saved.get(option.name, option.default)
        if option.metadata.get("of_task") and value in (None, f"${{task.{option.name}}}"):
            value = state["cfg"]["task"].get(option.name, option.default)
        setattr(options, option.name, value)
        if fault := _fault_of_option(option, value):
            raise UsageError(f"the checkpoint's option {option.name} is {fault}. Take another checkpoint.")
    return options


def known_options(state: State) -> tuple[dataclasses.Field, ...]:
    """Return the options that a model of this architecture has."""
    return language_model_fields() if is_language_model(state) else translation_model_fields()


def _fault_of_option(option: dataclasses.Field, value: Any) -> str | None:
    """Return what the value of an option is and should not be, or None."""
    wanted, allowed_values, is_of_mixer = plain_type(option), choices(option), option.name in option_fields()
    if value is None:
        return None if wanted is bool or is_of_mixer or option.name in _OPEN else "missing"
    if isinstance(value, str | int | float) and value == option.default:
        return None
    if wanted is not bool and allowed_values:
        right, allowed = value in allowed_values, f"one of {', '.join(allowed_values)}"
    elif wanted is str:
        # A mixer's option that may be one for each layer is text; others have written its number down as it is.
        right = type(value) in ((str, int) if is_of_mixer else (str,)) and len(str(value)) <= _LONGEST
        allowed = f"a text of at most {_LONGEST} characters"
    else:
        right = type(value) in ((int, float) if wanted is float else (wanted,))
        right = right and -_LARGEST <= value <= _LARGEST  # NaN is in no range
        allowed = {bool: "a switch", int: "a whole number", float: "a number"}[wanted]
        allowed += f" of at most {_LARGEST:,}" * (wanted is not bool)
    return None if right else f"{value!r:.40}, not {allowed}"


def vocabulary_sizes(weights: Weights) -> tuple[int, int]:
    """Return entries of the dictionaries of source and target that weights were trained with, 0 of one not there."""
    embeddings = (weights.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    source, target = (0 if weight is None or not weight.dim() else len(weight) for weight in embeddings)
    return source, target


def for_inference(state: State, model: Weights, **extra: object) -> State:
    """Return the content of a checkpoint with other weights, without what only training needs.

    `extra` are facts to keep in its ``extra_state``, beside the search settings that it records.
    """
    kept = {name: state[name] for name in ("cfg", "args", "task_state", "optimizer_history") if name in state}
    if recorded := recorded_search(state):
        extra = {ENTRY: recorded} | extra
    return kept | {"model": model, "extra_state": extra, "last_optimizer_state": None}


def check_output(path: str | Path, option: str, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a path where no checkpoint can be written, or of a file that was not made by :func:`for_inference`.

    Arguments as for :func:`posnet_fairseq.shared.files.check_place`.
    """
    check_place(path, option, inputs)
    if not Path(path).is_file():
        return
    try:
        state = load_content(path)
        extra = state.get("extra_state") if isinstance(state, dict) else None
        is_original = not (isinstance(extra, dict) and extra.keys() & set(MADE))
    except UsageError:
        is_original = Path(path).stat().st_size > 0
    if is_original:
        raise UsageError(
            f"{option} {path} is no checkpoint that posnet-average or posnet-precompute made, and would be lost. Give "
            "another name."
        )


def write_checkpoint(state: State, path: str | Path) -> None:
    """Write a checkpoint, whole or not at all."""
    # torch does not tell why it could not write to a path; a file of Python's does.
    with replacing(path) as temporary, open(temporary, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
