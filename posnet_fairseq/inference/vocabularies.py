"""Languages and dictionaries of trained models: found where the models were trained, or where the user says."""

import contextlib
import os
from pathlib import Path

from posnet_fairseq.inference.checkpoints import State, is_language_model, vocabulary_sizes
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.text.card import CARD, DatasetCard
from posnet_fairseq.text.dictionary import Dictionary, Vocabulary, dictionary_file
from posnet_fairseq.text.pipeline import check_dictionary


def read_vocabulary(state: State, data: str | Path | None = None) -> tuple[Vocabulary, Path]:
    """Return the vocabulary of a model, and the directory that it was read from.

    This is `data`, else the model's folder, or the directory that it was trained on.
    """
    folder = Path(data) if data else data_folder(state)
    own = (
        "the model's folder" if isinstance(state["cfg"]["task"].get("data"), Path) else "the directory of its training"
    )
    given = option("data") if data else own
    languages = languages_of(state, folder)
    names = [*map(dictionary_file, languages or ())]
    problem = ""
    if not folder.is_dir():
        problem = f": there is no such directory{'' if folder.is_absolute() else ' from here'}"
    elif languages is None:
        problem = f" has neither binarized data nor a {CARD} that tells the languages of the model"
    elif missing := [name for name in names if not (folder / name).exists()]:
        problem = f" has no {missing[0]}"
    if problem or languages is None:
        advice = f"Give the directory with the dictionaries by {option('data')}"
        raise UsageError(f"{folder} ({given}){problem}. {advice}.")
    for language in languages:
        check_dictionary(folder, language)
    dictionaries = {name: Dictionary.load(folder / name) for name in dict.fromkeys(names)}
    return Vocabulary(*languages, *(dictionaries[name] for name in names)), folder


def data_folder(state: State) -> Path:
    """Return the directory of data that a model was trained on, of several the first; or its model folder."""
    data = state["cfg"]["task"].get("data")
    return data if isinstance(data, Path) else Path(str(data).split(":")[0])


def languages_of(state: State, folder: Path | None = None) -> tuple[str, str] | None:
    """Return source and target of a model: as given in training, else in the names of the data, as fairseq finds them.

    Both are "" for a language model. `folder` is another data directory, read where the training data tell nothing.
    """
    if is_language_model(state):
        return "", ""
    source, target = (state["cfg"]["task"].get(f"{side}_lang") for side in ("source", "target"))
    for place in filter(None, (data_folder(state), folder)):
        if not (source and target):
            source, target = infer_languages(place)
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def infer_languages(folder: str | Path) -> tuple[str, str] | tuple[None, None]:
    """Return the two languages in the names of binarized data, ``SET.SOURCE-TARGET.LANGUAGE.idx``, or of the card."""
    with contextlib.suppress(OSError, ValueError):  # a folder that is gone, or cannot be read, tells nothing
        for name in os.listdir(folder):
            parts = name.split(".")
            if len(parts) >= 3 and parts[1].count("-") == 1:
                source, target = parts[1].split("-")
                if parts[2] in (source, target):
                    return source, target
    card = DatasetCard.read_if_whole(folder)
    if card.source_lang and card.target_lang:
        return card.source_lang, card.target_lang
    return None, None


def refuse_other_tasks(states: dict[str, State], vocabulary: Vocabulary) -> None:
    """Refuse an ensemble of models, by path, of several languages or of dictionaries of several sizes."""
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


def refuse_other_dictionaries(path: str | Path, state: State, vocabulary: Vocabulary, folder: Path) -> None:
    """Refuse dictionaries of a folder that differ from those that a model was trained with, if these are still there.

    `path` is that of the model's checkpoint.
    """
    own_folder = data_folder(state)
    for language, dictionary in zip(vocabulary.languages, vocabulary.dictionaries, strict=True):
        own, used = (each / dictionary_file(language) for each in (own_folder, folder))
        differs = False
        with contextlib.suppress(OSError, UsageError):  # one that cannot be read any more tells nothing
            differs = own.is_file() and not own.samefile(used) and Dictionary.load(own) != dictionary
        if differs:
            raise UsageError(
                f"{path} was trained with the dictionary {own}, which differs from {used}. Give a model that was "
                f"trained with the latter, or the directory with its own dictionaries by {option('data')}."
            )
