"""The stage that reads text of one language, for language models."""

import random

from posnet_data_prep.pipeline.binarise import SETS
from posnet_data_prep.sources.readers import Reader
from posnet_data_prep.sources.reading import check_files, plain_size
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import is_blank, write_lines
from posnet_fairseq.shared.records import digest
from posnet_fairseq.shared.stages import Stage

# Of a text without a validation and a test set, its last parts become them, each one of so many.
PARTS = 20


def own_text(train, valid, test, ending, shuffle):
    """The stage that reads text files, a sentence or paragraph a line; blank lines are left out.

    Args:
        train, valid, test: paths. Without `valid` and `test` they are the last two twentieths of `train`.
        ending: of the files that are made.
        shuffle: None, or a seed: put the lines of each set in random order, for lines that do not belong together.

    Raises:
        UsageError: only one of `valid` and `test` is given.
    """
    if (valid is None) != (test is None):
        raise UsageError("--valid and --test belong together. Give both, or none to take them off the end of --train.")
    files = [path for path in (train, valid, test) if path]
    check_files(files)

    def read(folder, report):
        sets = _sets(files)
        for name, lines in sets.items():
            if shuffle is not None:
                random.Random(shuffle).shuffle(lines)
            write_lines(folder / f"{name}.{ending}", lines)
        return {name: {"lines": len(lines)} for name, lines in sets.items()}

    options = {"files": [digest(path, "sha256") for path in files], "shuffle": shuffle}
    return Stage("read", read, options, size=sum(map(plain_size, files)))


def _sets(files):
    if len(files) == 3:
        sets = {name: _lines(path) for name, path in zip(SETS, files, strict=True)}
        for path, lines in zip(files, sets.values(), strict=True):
            if not lines:
                raise UsageError(f"{path} has no text. Give another file.")
        return sets
    lines = _lines(files[0])
    part = len(lines) // PARTS
    if not part:
        raise UsageError(
            f"{files[0]} has {len(lines)} lines with text, too few to take a validation and a test set off its end. "
            f"Give {PARTS} lines or more, or files for --valid and --test."
        )
    return {"train": lines[: -2 * part], "valid": lines[-2 * part : -part], "test": lines[-part:]}


def _lines(path):
    return [line for line in Reader(strict=True).plain(path) if not is_blank(line)]
