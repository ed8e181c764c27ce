"""The command line of posnet-prepare."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from posnet_data_prep.datasets import DATASETS, DEBIAN, QUICKSTART, SMALL_TEXT, STUDY, Recipe
from posnet_data_prep.sources.own_files import is_table
from posnet_fairseq.shared.compressed import plain_suffix
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import a_path, cache_folder, path_text
from posnet_fairseq.shared.output_paths import check_for_fairseq
from posnet_fairseq.shared.processes import check_workers, cores
from posnet_fairseq.shared.schema import check_numbers

MOST = 10**9  # of anything that is counted
COUNTS = ("pieces", "merges", "min_length", "max_length", "max_ratio", "valid_every")


def check(options: argparse.Namespace) -> None:
    """Refuse options of a command line that are wrong by themselves.

    Raises:
        UsageError: no dataset is named, a number is out of range, or the folder of the dataset has a name that fairseq
            cannot be given.
    """
    if not options.list and options.dataset is None:
        raise UsageError("name a dataset, or give --list to see all of them.")
    given = [name for name in COUNTS if getattr(options, name, None) is not None]
    if "merges" in given and len(options.merges) > 2:
        raise UsageError(f"--merges {' '.join(map(str, options.merges))}: give one number, or one for each language.")
    check_numbers(options, **{name: (1, MOST) for name in given})
    if options.dataset is not None:
        check_workers(options.workers)
        check_for_fairseq(options.out, f"--out {options.out}", True)
    if getattr(options, "valid_every", None) == 1:
        raise UsageError("--valid-every 1: no training pair would be left. Give 2 or more.")


def make_parser() -> argparse.ArgumentParser:
    """The parser of posnet-prepare's options."""
    parser = argparse.ArgumentParser(
        prog="posnet-prepare",
        description="Download, read, clean, split and binarise a dataset. Stop it at any time; the same command "
        "continues where it stopped.",
    )
    parser.add_argument("--list", action="store_true", help="show all datasets, and which of their files are cached")
    cache = cache_folder()
    keep = f"folder that keeps downloaded files (default: {cache})"
    parser.add_argument("--downloads", type=a_path, default=cache, help=keep)
    datasets = parser.add_subparsers(dest="dataset", metavar="DATASET")
    texts = {
        **{name: dataset.title for name, dataset in DATASETS.items()},
        **dict.fromkeys(QUICKSTART, "interface texts of open-source programs"),
        **dict.fromkeys(DEBIAN, "descriptions of Debian's packages, with apt"),
        **dict.fromkeys(STUDY, "descriptions of Debian's packages and interface texts, with a test set of each"),
    }
    for name, text in texts.items():
        dataset = datasets.add_parser(name, help=text)
        dataset.add_argument("--downloads", type=a_path, default=argparse.SUPPRESS, help=keep)
        dataset.add_argument("--mirror", type=path_text, help="folder, or URL of one, to take all files from instead")
        if name in DATASETS:
            _add_recipe(dataset, DATASETS[name].recipe)
    _add_corpus(datasets.add_parser("corpus", help="sentence pairs of your own"))
    _add_text(datasets.add_parser("text", help="text of one language, for language models"))
    for dataset in datasets.choices.values():
        dataset.add_argument("--out", required=True, type=a_path, help="folder of the dataset")
        dataset.add_argument("--workers", type=int, default=cores(), help=f"processes (default: all cores, {cores()})")
        dataset.add_argument("--dry-run", action="store_true", help="only show the stages and the disk space they need")
    return parser


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    """Add the options of sentence pairs."""
    files = "SOURCE TARGET [SOURCE TARGET ...], or tables of two columns, *.tsv; gzip, bzip2 and xz too"
    parser.add_argument("--train", required=True, nargs="+", type=a_path, metavar="FILE", help=files)
    parser.add_argument(
        "--valid", nargs="+", type=a_path, metavar="FILE", help="files as for --train (or give --valid-every)"
    )
    parser.add_argument("--test", nargs="+", type=a_path, metavar="FILE", help="files as for --train")
    parser.add_argument(
        "-s", "--source-lang", help="code of two or three letters (default: the suffix of the first file, of two)"
    )
    parser.add_argument(
        "-t", "--target-lang", help="code of two or three letters (default: the suffix of the second file, of two)"
    )
    parser.add_argument(
        "--like",
        type=a_path,
        metavar="DATA",
        help="folder of another dataset, whose tokenizers, subwords and dictionaries are used, for a model of it",
    )
    _add_recipe(parser, Recipe())


def _add_text(parser: argparse.ArgumentParser) -> None:
    """Add the options of text of one language."""
    parser.add_argument("--train", required=True, type=a_path, help="text file, a sentence or paragraph a line")
    parser.add_argument("--valid", type=a_path, help="validation set (default, with --test: the end of --train)")
    parser.add_argument("--test", type=a_path, help="test set")
    pieces = SMALL_TEXT.pieces
    parser.add_argument("--pieces", type=int, default=pieces, help=f"sentencepiece BPE pieces (default: {pieces})")
    parser.add_argument(
        "--shuffle", type=int, metavar="SEED", help="put the lines in random order; for lines that are no running text"
    )


def _add_recipe(parser: argparse.ArgumentParser, recipe: Recipe) -> None:
    """Add the options that change a recipe."""
    text = parser.add_argument_group("how text becomes tokens")
    text.add_argument("--subwords", choices=("bpe", "sentencepiece"), help=f"default: {recipe.subwords}")
    merges = " ".join(map(str, recipe.merges))
    text.add_argument(
        "--merges",
        nargs="+",
        type=int,
        metavar="N",
        help=f"BPE merges: one number for both languages together, or one for each (default: {merges})",
    )
    text.add_argument(
        "--pieces", type=int, help=f"sentencepiece pieces, for both languages together (default: {recipe.pieces})"
    )
    text.add_argument(
        "--tokenizer",
        choices=("jieba", "characters"),
        help=f"tokenizer of Chinese, before BPE (default: {recipe.tokenizer}); other languages are tokenised as Moses "
        "does",
    )
    text.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help=f"default: {'yes' if recipe.lowercase or recipe.lowercase_first else 'no'}",
    )
    unit = "words" if recipe.clean == "words" else "subwords"
    ratio = f"largest number of {unit} of one side per one of the other, in training (default: {recipe.max_ratio})"
    text.add_argument("--min-length", type=int, help=f"{unit} of a training sentence (default: {recipe.min_length})")
    text.add_argument("--max-length", type=int, help=f"{unit} of a training sentence (default: {recipe.max_length})")
    text.add_argument("--max-ratio", type=float, help=ratio)
    every = f" (default: {recipe.valid_every})" if recipe.valid_every else ""
    text.add_argument(
        "--valid-every", type=int, metavar="N", help=f"every N-th training pair goes to the validation set{every}"
    )


def recipe(options: argparse.Namespace, default: Recipe, languages: Sequence[str]) -> Recipe:
    """The recipe of a command line.

    Args:
        options: options of the command line.
        default: recipe whose settings the options change.
        languages: source and target.

    Raises:
        UsageError: options contradict each other.
    """
    names = ("subwords", "tokenizer", "lowercase", *COUNTS)
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if getattr(options, "like", None):
        for name in ("subwords", "merges", "pieces", "tokenizer", "lowercase"):
            if name in given:
                raise UsageError(f"{flag(name)} with --like {options.like}: that dataset's are used. Leave it out.")
    subwords = given.get("subwords", default.subwords)
    unread = {"sentencepiece": ("merges", "tokenizer"), "bpe": ("pieces",)}[subwords]
    for name in unread:
        if name in given:
            raise UsageError(f"{flag(name)} has no meaning with --subwords {subwords}. Leave it out.")
    if "tokenizer" in given and "zh" not in languages:
        raise UsageError(f"--tokenizer is for Chinese, the languages are {' and '.join(languages)}. Leave it out.")
    if "merges" in given:
        given["merges"] = tuple(given["merges"])
    if given.get("lowercase") is False:
        given["lowercase_first"] = False
    chosen = replace(default, **given)
    if chosen.min_length > chosen.max_length:
        raise UsageError(f"--min-length {chosen.min_length} is more than --max-length {chosen.max_length}.")
    return chosen


def languages(options: argparse.Namespace, sets: Mapping[str, Sequence[Path]]) -> tuple[str, str]:
    """Source and target language of sentence pairs: from the options, or from the suffixes of the first files.

    Args:
        options: options of the command line.
        sets: files of each set.

    Raises:
        UsageError: a language is unknown, or files are not in pairs.
    """
    for name, paths in sets.items():
        _refuse_odd(name, paths)
    texts = [path for path in sets["train"] if not is_table(path)]
    found = [_suffix(path) for path in texts[:2]] or ["", ""]
    chosen = options.source_lang or found[0], options.target_lang or found[1]
    for name, language in zip(("source_lang", "target_lang"), chosen, strict=True):
        given = getattr(options, name)
        if given and not re.fullmatch("[a-z]{2,3}", given):
            raise UsageError(f"{flag(name)} {given}: give a code of two or three letters, such as de or gsw.")
        if not re.fullmatch("[a-z]{2}", language) and not given:  # three letters may be a language, or txt, src, tok
            seen = f"the ending {language!r} is taken for no language, as only those of two letters are"
            seen = seen if language else "the files' names do not tell the language"
            raise UsageError(f"{seen}. Give {flag(name)} and its code of two or three letters, such as de or gsw.")
        if language in ("zho", "chi", "cmn"):
            raise UsageError(f"{flag(name)} {language}: Chinese is called zh here, so that it is split as Chinese.")
    if chosen[0] == chosen[1]:
        raise UsageError(f"source and target are both {chosen[0]}. Give --source-lang and --target-lang.")
    for name, paths in sets.items():
        _refuse_swapped(name, paths, chosen)
    return chosen


def _refuse_odd(name: str, paths: Sequence[Path]) -> None:
    """Refuse files of a set in which a source has no target next to it.

    Raises:
        UsageError: an odd number of text files stands before, between or after tables.
    """
    sides = 0
    for path in paths:
        if not is_table(path):
            sides += 1
        elif sides % 2:
            break
    if sides % 2:
        raise UsageError(
            f"--{name} has {len(paths)} files that are not in pairs. Give SOURCE TARGET [SOURCE TARGET ...], or "
            "tables, *.tsv."
        )


def _refuse_swapped(name: str, paths: Sequence[Path], languages: tuple[str, str]) -> None:
    """Refuse a source whose suffix is the target language, or a target whose suffix is the source language.

    Raises:
        UsageError: there is one.
    """
    texts = [path for path in paths if not is_table(path)]
    for number, path in enumerate(texts):
        side, other = number % 2, languages[1 - number % 2]
        if _suffix(path) == other:
            place = ("source", "target")[side]
            raise UsageError(f"--{name}: {path} stands for the {place}, {languages[side]}, and ends in {other}.")


def _suffix(path: Path) -> str:
    return plain_suffix(path).removeprefix(".")
