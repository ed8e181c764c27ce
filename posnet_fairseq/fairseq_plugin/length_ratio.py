"""γ, source tokens per target token: PosNet (Schmidt and Di Gangi, WMT 2023) Eq. 10.

Measured on binarised data.
"""

from pathlib import Path

from fairseq.data.data_utils import infer_language_pair

from posnet_fairseq.fairseq_plugin.binarised import sentence_sizes
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.length_ratio import UNKNOWN, parse


def measure(folder, source=None, target=None):
    """Count the tokens of a binarised training set (the subset ``train``), end symbols included, as positions are.

    Args:
        folder: directory that fairseq-preprocess wrote; several, as fairseq takes them, with colons between.
        source, target: languages. Default: those in the names of its files.

    Returns:
        source tokens, target tokens.

    Raises:
        UsageError: there is no training set, or it is damaged.
    """
    counts = [0, 0]
    for part in map(Path, str(folder).split(":")):
        if not part.is_dir():
            raise UsageError(f"{part}: there is no such directory. Give one that fairseq-preprocess wrote.")
        languages = (source, target) if source and target else _inferred(part, source, target)
        stem = _training_set(part, languages)
        for index, language in enumerate(languages):
            counts[index] += int(sentence_sizes(f"{stem}.{language}").sum())
    if not all(counts):
        raise UsageError(f"{folder}: the training set is empty.")
    return tuple(counts)


def _inferred(folder, source, target):
    """The two languages in the names of the files; the other way round if the one that is given says so."""
    languages = infer_language_pair(str(folder))
    if (source, target) != (None, None) and (source == languages[1] or target == languages[0]):
        languages = languages[::-1]
    return source or languages[0], target or languages[1]


def _training_set(folder, languages):
    if all(languages):
        for pair in ("-".join(languages), "-".join(reversed(languages))):
            stem = folder / f"train.{pair}"
            if all(Path(f"{stem}.{language}.{end}").exists() for language in languages for end in ("idx", "bin")):
                return stem
    raise UsageError(
        f"{folder} holds no binarised training set (train.SRC-TGT.SRC.idx and .bin). "
        "Give a directory that fairseq-preprocess wrote with --trainpref."
    )


def of_model(cfg, task):
    """γ for a new model: as given, else measured on the task's training set.

    Returns:
        source and target tokens; :data:`UNKNOWN` where there is no training set, as when a checkpoint, which has γ,
        is about to be loaded for translation.
    """
    given = parse(cfg.length_ratio)
    if given is not None:
        return given
    data = getattr(task, "cfg", None)
    try:
        return measure(data.data, data.source_lang, data.target_lang) if data is not None else UNKNOWN
    except UsageError:
        return UNKNOWN
