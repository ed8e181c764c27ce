"""The command line of posnet-prepare."""

import argparse
import math
import re
from dataclasses import replace

from posnet_data_prep.datasets import DATASETS, QUICKSTART, SMALL_TEXT, Recipe
from posnet_data_prep.sources.compressed import plain_suffix
from posnet_data_prep.sources.reading import is_table
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import a_path, cache_folder, path_text
from posnet_fairseq.shared.processes import check_workers, cores

MOST = 10**9  # of what is counted


def parse(arguments):
    """The options of a command line, checked one by one."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.list and options.dataset is None:
        parser.error("name a dataset, or --list to see which there are")
    for name in ("pieces", "min_length", "max_length", "valid_every"):
        value = getattr(options, name, None)
        if value is not None and not 1 <= value <= MOST:
            raise UsageError(f"{flag(name)} {value}: give 1 or more, up to {MOST:,}.")
    if options.dataset is not None:
        check_workers(options.workers)
        _check_out(options.out)
    if getattr(options, "valid_every", None) == 1:
        raise UsageError("--valid-every 1: no training pair would be left. Give 2 or more.")
    return options


def _check_out(out):
    """Refuse a folder that fairseq's commands could not be given later.

    Raises:
        UsageError: it has such a name.
    """
    name, reason = str(out), ""
    if ":" in name:
        reason = "fairseq takes a colon for the end of one folder and the begin of the next"
    elif name.startswith("-"):
        reason = "other commands take it for an option"
    elif "${" in name or name.endswith("\\"):
        reason = "fairseq reads ${ and a last backslash in its own way"
    if reason:
        raise UsageError(f"--out {name}: {reason}. Choose another name.")


def _parser():
    parser = argparse.ArgumentParser(
        prog="posnet-prepare",
        description="Download, read, clean, split and binarise a dataset. Stop it at any time; the same command goes "
        "on where it was.",
    )
    parser.add_argument("--list", action="store_true", help="show the datasets, and what of them is here already")
    cache = cache_folder()
    keep = f"folder that keeps what is downloaded (default: {cache})"
    parser.add_argument("--downloads", type=a_path, default=cache, help=keep)
    datasets = parser.add_subparsers(dest="dataset", metavar="DATASET")
    for name in [*DATASETS, *QUICKSTART]:
        text = "interface texts of open-source programs" if name in QUICKSTART else "as in PosNet's paper"
        dataset = datasets.add_parser(name, help=text)
        dataset.add_argument("--downloads", type=a_path, default=argparse.SUPPRESS, help=keep)
        dataset.add_argument("--mirror", type=path_text, help="folder, or URL of one, to take every file from instead")
        if name in DATASETS:
            _add_recipe(dataset, DATASETS[name].recipe)
    corpus = datasets.add_parser("corpus", help="sentence pairs of your own")
    files = "SOURCE TARGET [SOURCE TARGET ...], or tables of two columns, *.tsv; gzip, bzip2 and xz too"
    corpus.add_argument("--train", required=True, nargs="+", type=a_path, metavar="FILE", help=files)
    corpus.add_argument("--valid", nargs="+", type=a_path, metavar="FILE", help="likewise; or --valid-every")
    corpus.add_argument("--test", nargs="+", type=a_path, metavar="FILE", help="likewise")
    corpus.add_argument("-s", "--source-lang", help="two-letter code (default: the ending of the first file)")
    corpus.add_argument("-t", "--target-lang", help="two-letter code (default: the ending of the second file)")
    _add_recipe(corpus, Recipe())
    text = datasets.add_parser("text", help="text of one language, for language models")
    text.add_argument("--train", required=True, type=a_path, help="text file, a sentence or paragraph a line")
    text.add_argument("--valid", type=a_path, help="validation set (default, with --test: the end of --train)")
    text.add_argument("--test", type=a_path, help="test set")
    pieces = SMALL_TEXT.pieces
    text.add_argument("--pieces", type=int, default=pieces, help=f"sentencepiece BPE pieces (default: {pieces})")
    text.add_argument(
        "--shuffle", type=int, metavar="SEED", help="put lines in random order, where they do not belong together"
    )
    for dataset in datasets.choices.values():
        dataset.add_argument("--out", required=True, type=a_path, help="folder of the dataset")
        dataset.add_argument("--workers", type=int, default=cores(), help=f"processes (default: all cores, {cores()})")
        dataset.add_argument("--dry-run", action="store_true", help="only show the stages and what they need")
    return parser


def _add_recipe(parser, recipe):
    text = parser.add_argument_group("how text becomes tokens")
    text.add_argument("--subwords", choices=("bpe", "sentencepiece"), help=f"default: {recipe.subwords}")
    merges = " ".join(map(str, recipe.merges))
    text.add_argument(
        "--merges",
        nargs="+",
        type=int,
        metavar="N",
        help=f"of BPE: one number for both languages, or one for each (default: {merges})",
    )
    text.add_argument("--pieces", type=int, help=f"of sentencepiece, for both languages (default: {recipe.pieces})")
    text.add_argument(
        "--tokenizer",
        choices=("jieba", "characters"),
        help=f"of Chinese, before BPE (default: {recipe.tokenizer}); other languages have Moses words",
    )
    text.add_argument(
        "--lowercase", action=argparse.BooleanOptionalAction, help=f"default: {'yes' if recipe.lowercase else 'no'}"
    )
    by = "words" if recipe.clean == "words" else "subwords"
    ratio = f"{by} of one side for one of the other, in training (default: {recipe.max_ratio})"
    text.add_argument("--min-length", type=int, help=f"{by} of a training sentence (default: {recipe.min_length})")
    text.add_argument("--max-length", type=int, help=f"{by} of a training sentence (default: {recipe.max_length})")
    text.add_argument("--max-ratio", type=float, help=ratio)
    every = f" (default: {recipe.valid_every})" if recipe.valid_every else ""
    text.add_argument("--valid-every", type=int, metavar="N", help=f"every Nth training pair is for validation{every}")


def recipe(options, default, languages):
    """The recipe of a command line.

    Args:
        options: of the command line.
        default: the :class:`Recipe` whose fields it may change.
        languages: of source and target.

    Raises:
        UsageError: options that do not go together.
    """
    names = ("subwords", "merges", "pieces", "tokenizer", "lowercase", "min_length", "max_length", "max_ratio")
    given = {name: getattr(options, name) for name in (*names, "valid_every") if getattr(options, name) is not None}
    subwords = given.get("subwords", default.subwords)
    unread = {"sentencepiece": ("merges", "tokenizer"), "bpe": ("pieces",)}[subwords]
    for name in unread:
        if name in given:
            raise UsageError(f"{flag(name)} has no meaning with --subwords {subwords}. Leave it out.")
    if "tokenizer" in given and "zh" not in languages:
        raise UsageError(f"--tokenizer is for Chinese, the languages are {' and '.join(languages)}. Leave it out.")
    if "merges" in given:
        given["merges"] = tuple(given["merges"])
        if len(given["merges"]) > 2 or not 1 <= min(given["merges"]) <= max(given["merges"]) <= MOST:
            raise UsageError(
                f"--merges {' '.join(map(str, options.merges))}: give one number, or two, of 1 or more, up to {MOST:,}."
            )
    chosen = replace(default, **given)
    if chosen.min_length > chosen.max_length:
        raise UsageError(f"--min-length {chosen.min_length} is more than --max-length {chosen.max_length}.")
    if not 1 <= chosen.max_ratio < math.inf:
        raise UsageError(f"--max-ratio {chosen.max_ratio}: give 1 or more.")
    return chosen


def languages(options, sets):
    """Source and target language of a corpus of one's own: as given, or as its first files end.

    Raises:
        UsageError: they are not to be seen, or files do not come in pairs.
    """
    for name, paths in sets.items():
        between = "".join("t" if is_table(path) else "x" for path in paths).split("t")
        if any(len(texts) % 2 for texts in between):
            raise UsageError(
                f"--{name} has {len(paths)} files that are not in pairs. Give SOURCE TARGET [SOURCE TARGET ...], or "
                "tables, *.tsv."
            )
    texts = [path for path in sets["train"] if not is_table(path)]
    found = [_ending(path) for path in texts[:2]] or ["", ""]
    chosen = options.source_lang or found[0], options.target_lang or found[1]
    for name, language in zip(("source_lang", "target_lang"), chosen, strict=True):
        letters = "[a-z]{2,3}" if getattr(options, name) else "[a-z]{2}"  # .txt, .src and the like are no languages
        if not re.fullmatch(letters, language):
            seen = f"{language!r} is no language" if language else "the files' names do not tell the language"
            raise UsageError(f"{seen}. Give {flag(name)} and its two-letter code, such as de.")
        if language in ("zho", "chi", "cmn"):
            raise UsageError(f"{flag(name)} {language}: Chinese is called zh here, so that it is split as Chinese.")
    if chosen[0] == chosen[1]:
        raise UsageError(f"source and target are both {chosen[0]}. Give --source-lang and --target-lang.")
    _refuse_swapped(sets, chosen)
    return chosen


def _refuse_swapped(sets, languages):
    """Refuse a source whose name says it is the target, or the other way round."""
    for name, paths in sets.items():
        texts = [path for path in paths if not is_table(path)]
        for number, path in enumerate(texts):
            other = languages[1 - number % 2]
            if _ending(path) == other:
                place = ("source", "target")[number % 2]
                raise UsageError(
                    f"--{name}: {path} stands for the {place}, {languages[number % 2]}, and ends in {other}."
                )


def _ending(path):
    return plain_suffix(path).removeprefix(".")
