"""Notes on a dataset, for its card and its user."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from posnet_data_prep.datasets import Recipe
from posnet_data_prep.pipeline.apply import IN_TRAINING, NOT_NFC


def notes_on_subwords(counts: Mapping[str, Any], recipe: Recipe) -> Iterator[str]:
    """A sentence for each file with fewer subwords than were asked for.

    Args:
        counts: counts of the stage that learns subwords.
        recipe: numbers that were asked for.
    """
    if recipe.subwords == "sentencepiece":
        found = [(recipe.pieces, counts["pieces"], "pieces")]
    else:
        found = [(asked, of["merges"], "merges") for asked, of in zip(recipe.merges, counts.values(), strict=True)]
    for asked, learnt, unit in found:
        if learnt < asked:
            yield f"only {learnt:,} of {asked:,} {unit} could be learnt from the training text"


def notes_on_tokens(counts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each file that seems to be tokenized already.

    Args:
        counts: counts of each set that was read.
    """
    found: Counter[str] = Counter()
    for of_set in counts.values():
        found.update(of_set.get("tokenized", {}))
    for file, lines in found.items():
        yield (
            f"{file} looks tokenized: {lines:,} lines end in a space and a full stop. A model of such text "
            "translates text that is tokenized in the same way; give plain text for others"
        )


def notes_on_text(counts: Mapping[str, Mapping[str, int]], unit: str) -> Iterator[str]:
    """Sentences on repeated lines, and on letters that are not in Unicode's normal form.

    Args:
        counts: counts of each set.
        unit: ``pairs`` or ``lines``.
    """
    for name, of_set in counts.items():
        if repeated := of_set.get(IN_TRAINING):
            yield f"{repeated:,} of {of_set['lines']:,} {unit} of the {name} set are in the training set, too"
    odd = [f"{of_set[NOT_NFC]:,} {name}" for name, of_set in counts.items() if of_set.get(NOT_NFC)]
    if odd:
        yield (
            f"{unit} that are not in Unicode's normal form NFC, and stay so: {', '.join(odd)}. Where other text is, "
            "the same letters are other tokens to a model"
        )
