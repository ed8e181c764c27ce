"""What making any dataset has in it: a folder that appears when it is whole, pieces of words, fairseq's binary form."""

import contextlib
import json
import logging
import shutil
import time
from importlib.metadata import version

from fairseq import options as fairseq_options
from fairseq_cli import preprocess
from sentencepiece import SentencePieceTrainer

from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import read_lines, write_lines
from posnet_fairseq.text_pipeline import CARD, SentencePieces

MODEL = "sentencepiece.model"
SETS = ("train", "valid", "test")
PIECES = 3000


@contextlib.contextmanager
def building(out):
    """A folder to make a dataset in, and its card, a dict; it is named `out` when the block ends well."""
    if out.exists():
        raise UsageError(f"{out} exists already. Choose another --out, or remove it to make it anew.")
    start = time.perf_counter()
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    card = {}
    yield partial, card
    card["versions"] = {package: version(package) for package in ("posnet", "sentencepiece")}
    card["seconds"] = round(time.perf_counter() - start, 1)
    write_lines(partial / CARD, [json.dumps(card, indent=2)])
    partial.rename(out)


def split_into_pieces(learn_on, files, model, pieces):
    """Learn sentencepiece BPE, and apply it: of NAME.SUFFIX it makes NAME.bpe.SUFFIX.

    Args:
        learn_on: files of plain text.
        files: those that are to be split.
        model: file of the pieces, which is made.
        pieces: how many there are; fewer if the text has not so many.

    Raises:
        UsageError: the text has more different letters than that.
    """
    with open(model, "wb") as writer:
        try:
            SentencePieceTrainer.train(
                sentence_iterator=(line for path in learn_on for line in read_lines(path)),
                model_writer=writer,
                model_type="bpe",
                vocab_size=pieces,
                hard_vocab_limit=False,
                max_sentence_length=2**30,  # it would leave out longer lines without a word
                character_coverage=1.0,
                normalization_rule_name="identity",  # what comes out is what went in
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).split("] ")[-1]
            raise UsageError(f"--pieces {pieces}: they cannot be learnt from this text. {reason}") from error
    encoder = SentencePieces(model)
    for path in files:
        write_lines(path.with_name(f"{path.stem}.bpe{path.suffix}"), map(encoder.encode, read_lines(path)))


def binarise(folder, workers, prefixes, *arguments):
    """fairseq's own preprocess.

    Args:
        folder: of the dataset.
        workers: processes.
        prefixes: of the training, validation and test set, files without their language.
        arguments: of fairseq-preprocess, besides these.
    """
    arguments = [*arguments, "--destdir", str(folder), "--workers", str(workers)]
    for name, prefix in zip(SETS, prefixes, strict=True):
        arguments += [f"--{name}pref", str(prefix)]
    logging.getLogger("fairseq_cli.preprocess").propagate = False  # it keeps its own preprocess.log
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(arguments))
