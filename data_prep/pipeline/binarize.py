"""Dictionaries and binary sets, byte for byte those of fairseq-preprocess.

Only words that are spelled like its special symbols, such as ``</s>``, are unknown here: there they end a sentence.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.text.binary_format import write_binarized
from posnet_fairseq.text.dictionary import Dictionary

MULTIPLE = 8  # of the entries of a dictionary: fairseq's --padding-factor
_LINES = 10_000  # that are encoded at once


def binarize(
    folder: Path,
    prefixes: Mapping[str, Path],
    languages: Sequence[str],
    joined: bool,
    bar: Bar,
    dictionaries: Sequence[Path] = (),
    symbols: Sequence[str] = (),
    training: Path | None = None,
) -> None:
    """Write dictionaries and the sets in ``PREFIX.LANGUAGE``; without languages, a prefix is a file.

    Dictionaries have all `symbols`, in the training text or not. The text of dictionaries has the prefix
    `training`, by default that of the training set. The bar advances by the tokens that are written.
    """
    endings = [f".{language}" for language in languages] or [""]
    texts = [Path(f"{training or prefixes['train']}{ending}") for ending in endings]
    if dictionaries:
        chosen = [Dictionary.load(path) for path in dictionaries]
    elif joined:
        chosen = [dictionary_of(texts, symbols)] * len(endings)
    else:
        chosen = [dictionary_of([text], symbols) for text in texts]
    pair = f".{'-'.join(languages)}" if languages else ""
    for ending, dictionary in zip(endings, chosen, strict=True):
        dictionary.save(folder / f"dict{ending}.txt")
        for name, prefix in prefixes.items():
            sentences = _encoded(Path(f"{prefix}{ending}"), dictionary, bar)
            write_binarized(folder / f"{name}{pair}{ending}", sentences, len(dictionary))


def dictionary_of(texts: Iterable[Path], symbols: Iterable[str]) -> Dictionary:
    """Return the dictionary of the tokens of texts, most frequent first, filled up to a multiple of 8 entries.

    Other symbols come behind the tokens.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        with text.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                counts.update(line.split())
    dictionary = Dictionary()
    for symbol, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if symbol not in dictionary:
            dictionary.add_symbol(symbol, count)
    for symbol in symbols:
        if symbol not in dictionary:
            dictionary.add_symbol(symbol, 0)
    number = 0
    while len(dictionary) % MULTIPLE:
        if (symbol := f"madeupword{number:04d}") not in dictionary:
            dictionary.add_symbol(symbol, 0)
        number += 1
    return dictionary


def _encoded(text: Path, dictionary: Dictionary, bar: Bar) -> Iterator[list[list[int]]]:
    """Yield the ids of the tokens of each line, end symbol included, of many lines at once."""
    with text.open(encoding="utf-8", newline="\n") as lines:
        while part := list(islice(lines, _LINES)):
            sentences = [*map(dictionary.ids_of, part)]
            yield sentences
            bar.advance(sum(map(len, sentences)))
