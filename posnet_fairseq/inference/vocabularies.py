"""Languages and dictionaries of trained models: found where the models were trained, or where the user says."""

import contextlib
import os
from pathlib import Path

from posnet_fairseq.inference.checkpoints import State, vocabulary_sizes
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary


def read_vocabulary(state: State, data: str | Path | None = None) -> tuple[Vocabulary, Path]:
    """The vocabulary of a translation model, and the directory that it was read from.

    Args:
        state: content of its checkpoint.
        data: directory with the dictionaries. Default: the one that the model was trained on.

    Raises:
        UsageError: nothing tells the languages, or a dictionary is missing or damaged.
    """
    folder, given = _folder(state, data)
    languages = languages_of(state, folder)
    if languages is None:
        raise UsageError(
            f"{folder} ({given}) has no binarized data that tells the languages of the model. Give the directory "
            f"that it was trained on by {option('data')}."
        )
    source, target = (_read_dictionary(folder, f"dict.{language}.txt", given) for language in languages)
    return Vocabulary(*languages, source, target), folder


def read_language_model_vocabulary(state: State, data: str | Path | None = None) -> tuple[Vocabulary, Path]:
    """The vocabulary of a language model, and the directory that it was read from.

    Args:
        state: content of its checkpoint.
        data: directory with the dictionary. Default: the one that the model was trained on.

    Raises:
        UsageError: the dictionary is missing or damaged.
    """
    folder, given = _folder(state, data)
    dictionary = _read_dictionary(folder, "dict.txt", given)
    return Vocabulary("", "", dictionary, dictionary), folder


def data_folder(state: State) -> Path:
    """The directory of data that a checkpoint's content was trained on, of several the first; or a model folder."""
    data = state["cfg"]["task"].get("data")
    return data if is_folder(state) else Path(str(data).split(":")[0])


def is_folder(state: State) -> bool:
    """Whether this is the content of a model folder, which has its own dictionaries."""
    return isinstance(state["cfg"]["task"].get("data"), Path)


def languages_of(state: State, folder: Path | None = None) -> tuple[str, str] | None:
    """Source and target of a model: as given in training, else in the names of the data, where fairseq found them.

    Args:
        state: content of its checkpoint.
        folder: directory of data, if the one that it was trained on is no longer there.

    Returns:
        two names, or None where nothing tells them.
    """
    source, target = (state["cfg"]["task"].get(f"{side}_lang") for side in ("source", "target"))
    for place in filter(None, (data_folder(state), folder)):
        if not (source and target):
            source, target = infer_languages(place)
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def infer_languages(folder: str | Path) -> tuple[str, str] | tuple[None, None]:
    """The two languages in the names of binarized data, ``SET.SOURCE-TARGET.LANGUAGE.idx``; None where none has them.

    Args:
        folder: directory that fairseq-preprocess wrote.
    """
    with contextlib.suppress(OSError):  # a folder that is gone, or cannot be read, tells nothing
        for name in os.listdir(folder):
            parts = name.split(".")
            if len(parts) >= 3 and parts[1].count("-") == 1:
                source, target = parts[1].split("-")
                return source, target
    return None, None


def refuse_other_tasks(states: dict[str, State], vocabulary: Vocabulary) -> None:
    """Refuse an ensemble of models of several languages, or of dictionaries of several sizes.

    Args:
        states: contents of checkpoints by path.
        vocabulary: the first model's.

    Raises:
        UsageError: a model differs from the first.
    """
    first, *others = states
    ours = vocabulary.languages
    for other in others:
        theirs = languages_of(states[other]) or ours
        sizes = [" and ".join(map(str, vocabulary_sizes(states[path]["model"]))) for path in (first, other)]
        if theirs != ours:
            difference = f"the first translates {'-'.join(ours)}, the second {'-'.join(theirs)}"
        elif sizes[0] != sizes[1]:
            difference = f"the dictionaries of the first have {sizes[0]} entries, those of the second {sizes[1]}"
        else:
            continue
        raise UsageError(f"{first} and {other} make no ensemble: {difference}. Give models of the same data.")


def refuse_other_dictionaries(path: str, state: State, vocabulary: Vocabulary, folder: Path) -> None:
    """Refuse dictionaries that differ from the ones that a model was trained with, if these are still there.

    Args:
        path: of the model's checkpoint.
        state: its content.
        vocabulary: the dictionaries to use.
        folder: directory that they were read from.

    Raises:
        UsageError: a dictionary differs.
    """
    found = other_dictionary(state, vocabulary, folder)
    if found:
        own, used = found
        raise UsageError(
            f"{path} was trained with the dictionary {own}, which differs from {used}. Give a model that was trained "
            f"with the latter, or the directory with its own dictionaries by {option('data')}."
        )


def other_dictionary(state: State, vocabulary: Vocabulary, folder: Path) -> tuple[Path, Path] | None:
    """The first dictionary that a model was trained with and the one in its place, if they differ.

    Args:
        state: content of the model's checkpoint.
        vocabulary: the dictionaries to use.
        folder: directory that they were read from.

    Returns:
        two files, or None: there is no difference, or the model's own dictionaries are no longer there.
    """
    trained_on = data_folder(state)
    for language, dictionary in (
        (vocabulary.source_lang, vocabulary.source_dictionary),
        (vocabulary.target_lang, vocabulary.target_dictionary),
    ):
        own = trained_on / f"dict.{language}.txt"
        used = folder / own.name
        try:
            differs = own.is_file() and not own.samefile(used) and Dictionary.load(own) != dictionary
        except (OSError, UsageError):  # it cannot be read any more, and tells nothing
            differs = False
        if differs:
            return own, used
    return None


def _folder(state: State, data: str | Path | None) -> tuple[Path, str]:
    """The directory of a model's dictionaries, and who says so.

    Raises:
        UsageError: it is not there.
    """
    folder = Path(data) if data else data_folder(state)
    given = option("data") if data else "the model's folder" if is_folder(state) else "the directory of its training"
    if not folder.is_dir():
        raise UsageError(
            f"{folder} ({given}): there is no such directory{'' if folder.is_absolute() else ' from here'}. Give the "
            f"directory with the dictionaries by {option('data')}."
        )
    return folder, given


def _read_dictionary(folder: Path, name: str, given: str) -> Dictionary:
    path = folder / name
    if not path.exists():
        raise UsageError(
            f"{folder} ({given}) has no {name}. Give the directory with the dictionaries by {option('data')}."
        )
    return Dictionary.load(path)
