"""Text of one language, for language models."""

import random

from posnet_data_prep.dataset import MODEL, SETS, binarise, building, split_into_pieces
from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import read_lines, write_lines

# Of a text without a validation and a test set, its last parts become them, each one of so many.
PARTS = 20


def prepare_text(train, valid, test, out, pieces, shuffle, workers):
    """Make the data of fairseq's task ``language_modeling``.

    Args:
        train, valid, test: text files, a sentence or paragraph a line; blank lines are left out. Without `valid` and
            `test` they are the last two twentieths of `train`.
        out: folder of the finished dataset; it appears only when it is whole.
        pieces: how many sentencepiece BPE pieces to learn.
        shuffle: None, or a seed: put the lines of each set in random order, for lines that do not belong together.
        workers: processes of fairseq-preprocess.

    Returns:
        The number of lines of each set, a dict.

    Raises:
        UsageError: a file is missing, not UTF-8, or has too little text.
    """
    sets = _sets(train, valid, test)
    with building(out) as (folder, card):
        # fairseq would take a file of the name "train" for the data itself.
        files = [folder / f"{name}.txt" for name in SETS]
        for file, lines in zip(files, sets.values(), strict=True):
            if shuffle is not None:
                random.Random(shuffle).shuffle(lines)
            write_lines(file, lines)
        split_into_pieces(files[:1], files, folder / MODEL, pieces)
        binarise(folder, workers, [folder / f"{name}.bpe.txt" for name in SETS], "--only-source")
        card |= {"sentencepiece_model": MODEL, "shuffle": shuffle}
        card["lines"] = {name: len(lines) for name, lines in sets.items()}
    return card["lines"]


def _sets(train, valid, test):
    if (valid is None) != (test is None):
        raise UsageError("--valid and --test belong together. Give both, or none to take them off the end of --train.")
    if valid is not None:
        sets = {name: _lines(path) for name, path in zip(SETS, (train, valid, test), strict=True)}
        for path, lines in zip((train, valid, test), sets.values(), strict=True):
            if not lines:
                raise UsageError(f"{path} has no text. Give another file.")
        return sets
    lines = _lines(train)
    part = len(lines) // PARTS
    if not part:
        raise UsageError(
            f"{train} has {len(lines)} lines with text, too few to take a validation and a test set off its end. "
            f"Give {PARTS} lines or more, or files for --valid and --test."
        )
    return {"train": lines[: -2 * part], "valid": lines[-2 * part : -part], "test": lines[-part:]}


def _lines(path):
    return [line for line in read_lines(path) if line.strip()]
