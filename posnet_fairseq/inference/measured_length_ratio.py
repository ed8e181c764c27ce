"""γ of a new model: given, or measured on binarized data."""

import contextlib
from pathlib import Path
from typing import Any

from posnet_fairseq.inference.vocabularies import infer_languages
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.binary_format import binarized_set, read_tokens
from posnet_fairseq.transformer.length_ratio_option import UNKNOWN, Ratio, parse


def measure(
    folder: str | Path,
    source: str | None = None,
    target: str | None = None,
    subset: str = "train",
    upsample_primary: int = 1,
    longest_source: int | None = None,
) -> Ratio:
    """Count source and target tokens of a binarized training set, end symbols included, as fairseq's task reads it.

    Args:
        folder: directory that fairseq-preprocess wrote; several, as fairseq takes them, with colons between.
        source, target: languages. Default: those in the names of its files.
        subset: which set; those named like it with 1, 2, ... behind belong to it.
        upsample_primary: how often the first of them counts, where there are several.
        longest_source: tokens to which sources are cut, if they are.
    """
    counts = [0, 0]
    for part in map(Path, str(folder).split(":")):
        if not part.is_dir():
            raise UsageError(f"{part}: there is no such directory. Give one that fairseq-preprocess wrote.")
        first, second = infer_languages(part)
        if source == second or target == first:  # the other way round
            first, second = second, first
        languages = source or first, target or second
        stems = [binarized_set(part, subset, languages)]
        with contextlib.suppress(UsageError):  # there is no next one
            while True:
                stems.append(binarized_set(part, f"{subset}{len(stems)}", languages))
        for number, stem in enumerate(stems):
            times = upsample_primary if number == 0 < len(stems) - 1 else 1
            sources, targets = (read_tokens(f"{stem}.{language}")[1] for language in languages)
            if longest_source is not None:
                sources = sources.clip(max=longest_source)
            counts[0] += times * int(sources.sum())
            counts[1] += times * int(targets.sum())
    if not all(counts):
        raise UsageError(f"{folder}: the training set is empty.")
    return counts[0], counts[1]


def of_model(cfg: Any, task: Any) -> Ratio:
    """Return γ of a new model: as given, else measured on the training set of its fairseq task.

    ``UNKNOWN`` where there is no training set, as when a checkpoint, which has γ, is about to be loaded.
    """
    given: Ratio | None = parse(cfg.length_ratio)
    data: Any = getattr(task, "cfg", None)
    if given is None and hasattr(data, "truncate_source"):  # a task of translation
        longest = data.max_source_positions if data.truncate_source else None
        which = data.source_lang, data.target_lang, data.train_subset, max(1, data.upsample_primary), longest
        with contextlib.suppress(UsageError):
            given = measure(data.data, *which)
    return given or UNKNOWN
