"""Tokenisation of all sets, before subwords."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from posnet_data_prep.datasets import Recipe
from posnet_data_prep.pipeline.lines import Columns, Rows, count_tokens, map_lines
from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.text.tokenizers import Tokenizer


def tokenizer_of(language: str, recipe: Recipe) -> Tokenizer:
    """The tokenizer that a recipe chooses for a language."""
    by_words = recipe.tokenizer if language == "zh" else "moses"
    tokenizer = by_words if recipe.subwords == "bpe" else "none"
    return Tokenizer(
        language,
        tokenizer,
        normalise=recipe.normalise and tokenizer == "moses",
        split_hyphens=recipe.split_hyphens and tokenizer == "moses",
        straighten_apostrophes=recipe.straighten_apostrophes,
        lowercase=recipe.lowercase,
        lowercase_first=recipe.lowercase_first,
    )


def tokenise(
    tokenizers: Sequence[Tokenizer],
    sources: Sequence[Path],
    targets: Sequence[Path],
    processes: int,
    bar: Bar,
    resume: Path,
) -> dict[str, int]:
    """Tokenise the files of a set.

    Args:
        tokenizers: tokenizers of the languages.
        sources: plain text of each language.
        targets: files to write.
        processes: number of processes.
        bar: shows progress in lines.
        resume: file of notes from which an interrupted run continues.

    Returns:
        Number of ``lines``, and of tokens of each language.
    """
    for tokenizer in tokenizers:
        tokenizer.split("")  # loads its data before processes are started, which then share it

    def split(rows: Rows) -> tuple[Columns, Counter[str]]:
        columns = [
            list(map(tokenizer.split, lines))
            for tokenizer, lines in zip(tokenizers, zip(*rows, strict=True), strict=True)
        ]
        return columns, count_tokens([tokenizer.language for tokenizer in tokenizers], columns)

    return dict(map_lines(split, sources, targets, processes, bar, resume))
